"""Folders of Llama's kind: parity with transformers on random weights, and what is refused."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from models.checkpoints.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.checkpoints.decoder_families import FAMILIES
from models.checkpoints.huggingface import load_llama, load_pretrained
from models.checkpoints.llama import decoder_config
from models.checkpoints.stops import stop_tokens
from models.errors import SettingError
from models.networks.llama import Llama

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 3,
    "eos_token_id": 3,
    "pad_token_id": 0,
}
NUM_TOKENS = 64
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 100.0,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
}
SHORT, LONG = [1.0, 1.1, 1.5, 2.0], [1.0, 2.0, 4.0, 8.0]
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": SHORT,
    "long_factor": LONG,
}


@dataclass(frozen=True)
class Case:
    """A small configuration of transformers', and whether its class has other sizes' names."""

    kind: str
    changes: dict[str, Any] = field(default_factory=dict)

    def network(self) -> Any:
        """Random in every tensor: biases and norms too."""
        torch.manual_seed(4)
        config = transformers.AutoConfig.for_model(self.kind, **{**SIZES, **self.changes})
        config._attn_implementation = "eager"
        model = transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        model.train(False)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return model


CASES = {
    "llama": Case("llama"),
    "llama with biases, tied": Case(
        "llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    ),
    "llama 3.1": Case("llama", {"rope_parameters": LLAMA3}),
    "llama, linear": Case(
        "llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}}
    ),
    "llama, dynamic": Case(
        "llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 4.0}}
    ),
    "llama, yarn": Case("llama", {"rope_parameters": YARN}),
    "llama, yarn, not truncated": Case(
        "llama",
        {"rope_parameters": {**YARN, "truncate": False, "mscale": 0.7, "mscale_all_dim": 0.4}},
    ),
    "llama, heads of another size": Case("llama", {"head_dim": 16}),
    "llama, one head of keys": Case("llama", {"num_key_value_heads": 1}),
    "mistral": Case("mistral", {"sliding_window": 9}),
    "mistral without a window": Case("mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": Case("qwen2", {"tie_word_embeddings": True}),
    "qwen2 with windows": Case(
        "qwen2", {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2}
    ),
    "qwen3": Case("qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3, layer_types": Case(
        "qwen3",
        {
            "head_dim": 16,
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
        },
    ),
    "gemma": Case("gemma", {"head_dim": 16}),
    "gemma2": Case("gemma2", {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 12}),
    "gemma3_text": Case(
        "gemma3_text",
        {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 7, "query_pre_attn_scalar": 24},
    ),
    "gemma3_text, stretched": Case(
        "gemma3_text",
        {
            "head_dim": 16,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        },
    ),
    "phi3": Case("phi3", {"sliding_window": 10}),
    "phi3, longrope": Case(
        "phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": NUM_TOKENS}
    ),
    "phi3, part of a head": Case(
        "phi3",
        {
            "hidden_size": 64,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 100.0,
                "partial_rotary_factor": 0.75,
            },
        },
    ),
    "smollm3": Case("smollm3", {"no_rope_layer_interval": 2}),
    "smollm3, listed": Case(
        "smollm3", {"no_rope_layers": [1, 0, 0, 1], "tie_word_embeddings": False}
    ),
    "olmo2": Case("olmo2"),
    "olmo3": Case("olmo3", {"sliding_window": 6, "rope_parameters": None}),
    "olmo3, yarn on full layers": Case(
        "olmo3",
        {
            "sliding_window": 6,
            "rope_parameters": {
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    "granite": Case(
        "granite",
        {
            "embedding_multiplier": 3.0,
            "logits_scaling": 4.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "tie_word_embeddings": True,
        },
    ),
}
Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path, tokenizer: Tokenizer) -> Save:
    """Write a transformers model with a tokenizer; keywords replace fields of config.json."""

    def write(model: Any, **changes: object) -> Path:
        model.save_pretrained(tmp_path)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        return edit_config(tmp_path, **changes)

    return write


def edit_config(folder: Path, **changes: object) -> Path:
    """A value of ... removes the field."""
    path = folder / "config.json"
    values = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: each for name, each in values.items() if each is not ...}))
    return folder


def loaded(folder: Path) -> Llama:
    model = load_pretrained(folder).model
    assert isinstance(model, Llama)
    return model


@torch.inference_mode()
def largest_difference(ours: Llama, reference: Any) -> float:
    input_ids = torch.randint(0, SIZES["vocab_size"], (2, NUM_TOKENS))
    return float((ours(input_ids) - reference(input_ids).logits).abs().max())


@pytest.mark.parametrize("name", CASES)
def test_logits_equal_those_of_transformers(save: Save, name: str) -> None:
    reference = CASES[name].network()
    assert largest_difference(loaded(save(reference)), reference) < 1e-4


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_a_file_leaves_out_is_what_transformers_assumes(kind: str) -> None:
    """Only sizes differ between a network of an empty config.json and transformers' own."""
    config = transformers.AutoConfig.for_model(kind)
    ours = decoder_config({"model_type": kind}, (), None, Path("config.json"))
    head_size = (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    assert (ours.vocab_size, ours.hidden_size) == (config.vocab_size, config.hidden_size)
    assert ours.intermediate_size == config.intermediate_size
    assert (ours.num_layers, ours.num_heads) == (
        config.num_hidden_layers,
        config.num_attention_heads,
    )
    assert (ours.num_kv_heads, ours.head_size) == (config.num_key_value_heads, head_size)
    assert (ours.norm_eps, ours.is_tied) == (config.rms_norm_eps, config.tie_word_embeddings)
    assert ours.max_positions == config.max_position_embeddings
    layer_types = getattr(config, "layer_types", None)
    if layer_types:
        window = config.sliding_window or 0
        expected = [window if each == "sliding_attention" else 0 for each in layer_types]
        assert list(ours.windows) == expected


@pytest.mark.parametrize("name", ["llama 3.1", "gemma3_text, stretched", "qwen2", "phi3, longrope"])
def test_files_of_before_say_the_same_in_other_fields(save: Save, name: str) -> None:
    """`rope_theta` and `rope_scaling` with `type`, as transformers 4 writes them."""
    reference = CASES[name].network()
    folder = save(reference)
    values = json.loads((folder / "config.json").read_text())
    stated = values["rope_parameters"]
    full = dict(stated.get("full_attention", stated))
    scaling = {("type" if key == "rope_type" else key): value for key, value in full.items()}
    changes: dict[str, object] = {"rope_parameters": ..., "rope_theta": scaling.pop("rope_theta")}
    if full["rope_type"] != "default":
        changes["rope_scaling"] = scaling
    if "sliding_attention" in stated:
        changes["rope_local_base_freq"] = stated["sliding_attention"]["rope_theta"]
    assert largest_difference(loaded(edit_config(folder, **changes)), reference) < 1e-4


def test_a_longer_context_has_the_other_factors(save: Save) -> None:
    case = Case("phi3", {"rope_parameters": LONGROPE, "original_max_position_embeddings": 16})
    reference = case.network()
    folder = save(reference)
    ours = load_llama(folder, context=NUM_TOKENS).model
    assert isinstance(ours, Llama)
    assert (ours.config.max_positions, loaded(folder).config.max_positions) == (NUM_TOKENS, 16)
    assert largest_difference(ours, reference) < 1e-4


@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "olmo2"])
def test_weights_may_be_in_parts_and_in_half_precision(save: Save, kind: str) -> None:
    """In float32 rotary frequencies stay exact, which a network in half precision would round."""
    reference, stored = CASES[kind].network(), CASES[kind].network().to(torch.bfloat16)
    for exact, rounded in zip(reference.parameters(), stored.parameters(), strict=True):
        exact.data.copy_(rounded)
    folder = save(reference)
    stored.save_pretrained(folder, max_shard_size="16KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert largest_difference(loaded(folder), reference) < 1e-4


def test_a_part_that_is_missing_is_named(save: Save) -> None:
    folder = save(CASES["llama"].network())
    reference = CASES["llama"].network()
    (folder / "model.safetensors").unlink()
    reference.save_pretrained(folder, max_shard_size="16KB")
    part = max(folder.glob("*.safetensors"))
    part.unlink()
    with pytest.raises(CheckpointError, match=part.name):
        loaded(folder)


def test_the_texts_part_of_a_model_of_images_is_taken(save: Save) -> None:
    reference = CASES["gemma3_text"].network()
    folder = save(reference)
    tensors = load_file(folder / "model.safetensors")
    renamed = {
        name.replace("model.", "model.language_model.", 1): each for name, each in tensors.items()
    }
    save_file({**renamed, "vision_tower.x.weight": torch.ones(2)}, folder / "model.safetensors")
    path = folder / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({"model_type": "gemma3", "text_config": values}))
    assert largest_difference(loaded(folder), reference) < 1e-4


def test_greedy_tokens_equal_those_of_transformers_with_its_cache(save: Save) -> None:
    for name in ("llama 3.1", "gemma2", "qwen3", "smollm3"):
        reference = CASES[name].network()
        folder = save(reference)
        ours, prompt = loaded(folder), [5, 9, 2, 30]
        expected = reference.generate(
            torch.tensor([prompt]), max_new_tokens=60, do_sample=False, eos_token_id=None
        )[0].tolist()
        ids = list(prompt)
        with torch.inference_mode():
            while len(ids) < len(expected):
                ids.append(int(ours(torch.tensor([ids]))[0, -1].argmax()))
        assert ids == expected, name


def test_a_checkpoint_of_ours_holds_it_whole(save: Save, tmp_path: Path) -> None:
    """Frequencies of ropes, too, come back as they were to the last bit."""
    folder = save(CASES["gemma3_text, stretched"].network())
    checkpoint = load_checkpoint(folder)
    save_checkpoint(checkpoint, tmp_path / "ours")
    again = load_checkpoint(tmp_path / "ours")
    assert again.config == checkpoint.config
    ids = torch.randint(0, 40, (1, 20))
    with torch.inference_mode():
        assert torch.equal(again.model(ids), checkpoint.model(ids))


def test_everything_that_a_file_calls_an_end_ends_a_text(save: Save) -> None:
    folder = save(CASES["llama"].network(), eos_token_id=[3, 7])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 3]}))
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": words[5]}}))
    assert loaded(folder).config.eos_token_ids == (9, 3, 7, 5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quantization_config": {"bits": 4}}, "quantization_config is not supported"),
        ({"num_local_experts": 8}, "num_local_experts is 8, but only 0 is supported"),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 9.0}}, "rope_type is 'spiral'"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 9.0}}, "factor is None"),
        ({"hidden_act": "relu6"}, "hidden_act is 'relu6'"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu', but must be one of gelu_new"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3, but must be a divisor of num_att"),
        ({"eos_token_id": "end"}, "eos_token_id is 'end'"),
        ({"eos_token_id": 900}, "eos_token_ids is 900"),
        (
            {"architectures": ["LlamaForTokenClassification"]},
            "architectures has 'LlamaForTokenClassification'.*it cannot be imported",
        ),
        ({"model_type": "spiral"}, "model_type is 'spiral'.*it cannot be imported"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused_by_name(
    save: Save, changes: dict[str, object], words: str
) -> None:
    folder = save(CASES["llama"].network(), **changes)
    with pytest.raises(CheckpointError, match=words):
        loaded(folder)


def test_an_output_layer_that_is_not_the_word_vectors_stays_where_the_file_says_they_are_one(
    save: Save,
) -> None:
    """As transformers 5 leaves two tables of different values apart."""
    folder = save(CASES["llama"].network(), tie_word_embeddings=True)
    reference = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([[5, 6, 7, 8]])
    model = loaded(folder)
    assert not model.config.is_tied
    with torch.inference_mode():
        theirs = reference(ids).logits
        assert float((model(ids) - theirs).abs().max()) < 1e-5


def test_a_context_is_for_decoders_and_at_most_what_the_file_states(save: Save) -> None:
    folder = save(CASES["llama"].network())
    with pytest.raises(CheckpointError, match="context is 129, but must be from 1 to 128"):
        load_checkpoint(folder, 129)
    assert load_checkpoint(folder, 50).max_tokens == 50
    edit_config(folder, model_type="bert")
    with pytest.raises(SettingError, match="context is 50, but must be left out"):
        load_checkpoint(folder, 50)


def test_the_end_of_a_turn_that_a_template_writes_ends_a_text(save: Save) -> None:
    folder = save(CASES["llama"].network())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}<|im_end|>")
    values = {"vocab_size": 41}
    ends = stop_tokens(folder, {**values, "eos_token_id": 3})
    assert ends == (3, tokenizer.token_to_id("<|im_end|>"))
