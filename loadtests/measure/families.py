"""Encoders of each family in the size of MiniLM, with random weights, as Hugging Face folders.

Nothing may be downloaded, so that families other than MiniLM's have no trained weights here. Those
of layers are drawn wider than transformers draws them, without which texts hardly differ.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SPREAD = 1.5  # over the deviation that the family's configuration has
MAX_TOKENS = 256
_SIZES: dict[str, Any] = {
    "hidden_size": 384,
    "intermediate_size": 1_536,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "max_position_embeddings": MAX_TOKENS + 2,
}
MODULES = [
    {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
    for place, (kind, path) in enumerate((("Transformer", ""), ("Pooling", "1_Pooling")))
]


@dataclass(frozen=True, slots=True)
class Family:
    """A `model_type` of transformers, and what it has other than the sizes of all."""

    kind: str
    fields: dict[str, Any]


FAMILIES = (
    Family("bert", {}),
    Family("roberta", {}),
    Family("xlm-roberta", {}),
    Family(
        "distilbert",
        {
            "dim": 384,
            "hidden_dim": 1_536,
            "n_layers": 6,
            "n_heads": 12,
            "sinusoidal_pos_embds": False,
        },
    ),
    Family("electra", {"embedding_size": 128}),
    Family("albert", {"embedding_size": 128}),
    Family("mpnet", {}),
    Family(
        "deberta-v2",
        {
            "relative_attention": True,
            "pos_att_type": "p2c|c2p",
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_buckets": 64,
            "position_biased_input": False,
            "conv_kernel_size": 0,
        },
    ),
    Family("modernbert", {"local_attention": 64, "global_attn_every_n_layers": 3}),
)


def write_family(family: Family, target: Path, tokenizer: Path, *, is_reranker: bool) -> None:
    """A folder of the family: an encoder, or one with a head of one label.

    `tokenizer` is a folder of Hugging Face with BERT's tokenizer, whose vocabulary it gets.
    """
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    target.mkdir(parents=True)
    shutil.copy(tokenizer / "tokenizer.json", target)
    vocabulary = Tokenizer.from_file(str(target / "tokenizer.json")).get_vocab()
    ids = {f"{name}_token_id": vocabulary[f"[{name.upper()}]"] for name in ("pad", "cls", "sep")}
    torch.manual_seed(1)
    config = AutoConfig.for_model(
        family.kind,
        vocab_size=len(vocabulary),
        **ids,
        **({"num_labels": 1} if is_reranker else {}),
        **_SIZES | family.fields,
    )
    make: Any = AutoModelForSequenceClassification if is_reranker else AutoModel
    model = make.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embed" not in name:
                parameter.mul_(SPREAD)
    model.save_pretrained(target)
    fields = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": MAX_TOKENS}
    files: dict[str, Any] = {"tokenizer_config.json": fields}
    if not is_reranker:  # sentence-transformers' files
        pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_mean_tokens": True}
        files |= {"modules.json": MODULES, "1_Pooling/config.json": pooling}
        (target / "1_Pooling").mkdir()
    for name, content in files.items():
        (target / name).write_text(json.dumps(content), encoding="utf-8")
