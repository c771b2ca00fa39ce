"""Networks with one field of config.json changed, by transformers and by ours.

`python -m tests.checkpoints.fields` changes every field that transformers' class of a family has,
and those of other families: what an import takes must give transformers' logits, and what it does
not take must be refused by the field's name. A part of it is in the tests.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers

from models.checkpoints.checkpoint import load_checkpoint
from models.errors import ModelError
from tests.models.tiny import word_tokenizer

_ENCODER: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 24,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": None,
}
_DECODER: dict[str, Any] = {
    **_ENCODER,
    "hidden_size": 32,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "eos_token_id": 3,
}
ENCODERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "mpnet"), _ENCODER),
    "distilbert": {
        "vocab_size": 40,
        "dim": 24,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 40,
        "max_position_embeddings": 24,
        "initializer_range": 0.5,
    },
    "electra": {**_ENCODER, "embedding_size": 16},
    "albert": {**_ENCODER, "embedding_size": 16},
    "deberta-v2": {
        **_ENCODER,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_buckets": 4,
        "position_biased_input": False,
    },
    "modernbert": {**_ENCODER, "cls_token_id": None, "sep_token_id": None, "local_attention": 8},
    "nomic_bert": _ENCODER,
    "gte": _ENCODER,
}
DECODERS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "qwen2", "qwen3", "gemma", "granite", "olmo2"), _DECODER),
    **dict.fromkeys(("smollm3", "phi3"), _DECODER),
    "mistral": {**_DECODER, "sliding_window": 5},
    "gemma2": {**_DECODER, "sliding_window": 6},
    "gemma3_text": {**_DECODER, "sliding_window": 6},
    "olmo3": {**_DECODER, "sliding_window": 6},
    "gpt2": {
        "vocab_size": 40,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 64,
        "bos_token_id": 3,
        "eos_token_id": 3,
        "initializer_range": 0.5,
    },
}
# Fields whose values change a network of some family; others are changed by the type they have.
VALUES: dict[str, tuple[Any, ...]] = {
    "is_causal": (False, True),
    "use_bidirectional_attention": (True,),
    "is_decoder": (True,),
    "add_cross_attention": (True,),
    **dict.fromkeys(("embedding_multiplier", "logits_scaling"), (2.0,)),
    **dict.fromkeys(("residual_multiplier", "attention_multiplier"), (0.3,)),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), (2.0,)),
    "query_pre_attn_scalar": (100,),
    "partial_rotary_factor": (0.5,),
    "sliding_window": (3,),
    **dict.fromkeys(("use_sliding_window", "attention_bias", "mlp_bias", "norm_bias"), (True,)),
    "head_dim": (4, 16),
    "layer_types": (["full_attention", "sliding_attention"],),
    "no_rope_layers": ([0, 1],),
    "position_embedding_type": ("relative_key",),
    **dict.fromkeys(("hidden_act", "hidden_activation"), ("relu", "silu")),
    "rope_theta": (50.0,),
    "max_window_layers": (1,),
    "type_vocab_size": (3,),
    "embedding_size": (12,),
    "tie_word_embeddings": (True, False),
}
NEVER = (  # sizes, which weights show, and what is of no network
    *("vocab_size", "transformers_version", "architectures", "dtype", "id2label", "label2id"),
    *("return_dict", "output_hidden_states", "model_type", "problem_type", "hidden_size"),
    *("num_hidden_layers", "num_attention_heads", "dim", "n_layers", "n_heads", "n_embd"),
    *("n_layer", "n_head"),
)
TOLERANCE = 1e-4  # of the largest logit, and of 1 where all are smaller
IDS = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]])


def sizes(kind: str) -> dict[str, Any]:
    return {**ENCODERS, **DECODERS}[kind]


def fields(kind: str) -> list[str]:
    """Every field that transformers' class has, and those of other families."""
    own = transformers.AutoConfig.for_model(kind, **sizes(kind)).to_dict()
    return [name for name in dict.fromkeys([*own, *VALUES]) if name not in NEVER]


def changes(kind: str, name: str) -> Iterator[Any]:
    """Other values of a field."""
    own = transformers.AutoConfig.for_model(kind, **sizes(kind)).to_dict().get(name)
    if name in VALUES:
        yield from VALUES[name]
    elif isinstance(own, bool):
        yield not own
    elif isinstance(own, int):
        yield from [own + 1] if "token_id" in name or own == 0 else [max(1, own // 2), own * 2]
    elif isinstance(own, float):
        yield own * 3 if own else 0.3
    elif isinstance(own, str):
        yield from ("relu", "mean", "last")


def network(kind: str, head: Any, **changed: Any) -> Any:
    """A network of transformers, random in every tensor; raises where it does not take a field."""
    torch.manual_seed(3)
    config = transformers.AutoConfig.for_model(kind, **{**sizes(kind), "num_labels": 3, **changed})
    if kind == "gemma2":
        config._attn_implementation = "eager"  # the others have no caps of scores
    made = head.from_config(config).eval()
    for parameter in made.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made


@torch.inference_mode()
def wrong(kind: str, head: Any, name: str, value: Any, folder: Path) -> str:
    """Empty where ours gives transformers' logits or is refused by the field's name."""
    try:
        reference = network(kind, head, **{name: value})
        theirs = reference(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits
        reference.save_pretrained(folder)
    except Exception:  # whatever transformers says to a field that it cannot have
        return ""
    word_tokenizer().save(str(folder / "tokenizer.json"))
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    try:
        checkpoint = load_checkpoint(folder)
    except ModelError as error:
        said = str(error).replace(str(folder), "")
        # A table of another size, or an own output layer, is said by the name of the weight.
        is_named = name in said or "has shape" in said or "lm_head.weight" in said
        return "" if is_named or "max_distance" in said else said
    is_writer = checkpoint.task == "text-generation"
    network_of_ours: Any = checkpoint.model
    ours = network_of_ours(*([IDS] if is_writer else [IDS, torch.ones_like(IDS)]))
    difference = float((ours - theirs).abs().max() / max(1.0, float(theirs.abs().max())))
    return "" if difference < TOLERANCE else f"differs by {difference:.1e}"


def heads(kind: str) -> tuple[Any, ...]:
    classes: Any = transformers.AutoModelForSequenceClassification
    return (transformers.AutoModelForCausalLM, classes) if kind in DECODERS else (classes,)


def main() -> int:
    """The number of faults."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    num_cases = num_wrong = 0
    for kind in (*ENCODERS, *DECODERS):
        for name in fields(kind):
            for value in changes(kind, name):
                for head in heads(kind):
                    folder = Path(tempfile.mkdtemp())
                    fault = wrong(kind, head, name, value, folder)
                    shutil.rmtree(folder)
                    num_cases += 1
                    if fault:
                        num_wrong += 1
                        sys.stdout.write(f"{kind} {name} {value!r} {head.__name__}: {fault}\n")
    total = f"{num_cases} changes of {len(ENCODERS) + len(DECODERS)} families, {num_wrong} wrong"
    sys.stdout.write(f"{total}\n")
    return num_wrong


if __name__ == "__main__":
    sys.exit(bool(main()))
