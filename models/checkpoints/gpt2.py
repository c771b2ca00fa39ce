"""How Hugging Face names and packs what `models/networks/gpt.py` calls by one name.

Knows nothing about folders; a path is only for messages. Three things differ from ours: GPT-2's
linear maps are stored transposed ([in, out]), query, key and value are one matrix side by side, and
the output layer, which is the table of word vectors, may be stored a second time.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from models.checkpoints.family import activation
from models.checkpoints.left_out import CAUSAL_MASKS, is_same, renamed, without
from models.errors import CheckpointError, SettingError
from models.json_files import check_only
from models.networks.gpt import GPTConfig

GPT2 = "gpt2"  # the model_type of config.json
PREFIX = "transformer."
OUTPUT = "lm_head.weight"
WORDS = "wte.weight"
PACKED = re.compile(r"\.attn\.c_attn\.(weight|bias)$")
TRANSPOSED = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
OUTSIDE_LAYERS = {"words": "wte", "positions.table": "wpe", "norm": "ln_f"}
LAYER = {
    "attention_norm": "ln_1",
    "attention.query": "attn.c_attn",
    "attention.key": "attn.c_attn",
    "attention.value": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward.expand": "mlp.c_fc",
    "feed_forward.contract": "mlp.c_proj",
}
THIRDS = ("query", "key", "value")
PARTS = {"attn.c_attn": tuple(f"attn.c_attn.weight ({which})" for which in THIRDS)}


def check_gpt2(values: Mapping[str, Any], path: Path) -> None:
    """Refuse by name what we would compute differently.

    `reorder_and_upcast_attn` is not among it: in float32 it changes rounding only.
    """
    only = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "is_causal": True,
    }
    check_only(values, only, path)


def gpt2_config(values: Mapping[str, Any]) -> GPTConfig:
    """The sizes; dropout is the residual's, as all three rates are equal in known checkpoints."""
    hidden_size = int(values["n_embd"])
    intermediate_size = values.get("n_inner")
    eos_token_id = values.get("eos_token_id", 50_256)
    if not isinstance(eos_token_id, int):
        raise SettingError("eos_token_id", eos_token_id, "one token id")
    return GPTConfig(
        vocab_size=int(values["vocab_size"]),
        hidden_size=hidden_size,
        num_layers=int(values["n_layer"]),
        num_heads=int(values["n_head"]),
        intermediate_size=4 * hidden_size if intermediate_size is None else int(intermediate_size),
        max_positions=int(values["n_positions"]),
        layer_norm_eps=float(values.get("layer_norm_epsilon", 1e-5)),
        dropout=float(values.get("resid_pdrop", 0.1)),
        activation=activation(values.get("activation_function", "gelu_new"), "activation_function"),
        eos_token_id=eos_token_id,
    )


def gpt2_weights(
    tensors: Mapping[str, Tensor], values: Mapping[str, Any], path: Path
) -> dict[str, Tensor]:
    """The tensors of a file in our layout, by the names that `name_in_gpt2` gives."""
    plain = renamed(tensors, lambda name: name.removeprefix(PREFIX), path)
    short = without(plain, [CAUSAL_MASKS], path)
    output = short.pop(OUTPUT, None)
    if output is None and not values.get("tie_word_embeddings", True):
        raise CheckpointError(f"{path}: weights 1 missing: {OUTPUT}, as it is not tied")
    if output is not None and WORDS in short and not is_same(output, short[WORDS]):
        raise CheckpointError(
            f"{path}: {OUTPUT} differs from {WORDS}, but only an output layer tied to the word "
            "vectors is supported"
        )
    found: dict[str, Tensor] = {}
    for name, stored in short.items():
        tensor = stored.T if TRANSPOSED.search(name) and stored.ndim == 2 else stored
        if PACKED.search(name):
            thirds = zip(THIRDS, tensor.tensor_split(3), strict=True)
            found |= {_third(name, which): third for which, third in thirds}
        else:
            found[name] = tensor.contiguous()
    return found


def name_in_gpt2(name: str) -> str:
    """Translate our `name` of a weight into the file's; a packed one says which third it is."""
    module, _, kind = name.rpartition(".")
    if module in OUTSIDE_LAYERS:
        return f"{OUTSIDE_LAYERS[module]}.{kind}"
    _, index, rest = module.split(".", maxsplit=2)
    stored = f"h.{index}.{LAYER[rest]}.{kind}"
    which = rest.rpartition(".")[2]
    return _third(stored, which) if which in THIRDS else stored


def _third(name: str, which: str) -> str:
    return f"{name} ({which})"
