"""Folders of Mistral's own programs: params.json, and weights in consolidated.safetensors.

The names of tensors are fewer and shorter than those of transformers, and rows of queries and keys
stand in the order of rotated pairs. Imports no torch: what is changed are tensors that are given.
"""

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from models.checkpoints import file_names
from models.errors import CheckpointError, shown
from models.json_files import fields_of, read_object

OUTSIDE = {
    "tok_embeddings.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER = {
    **{f"attention.w{part}": f"self_attn.{part}_proj" for part in "qkvo"},
    "feed_forward.w1": "mlp.gate_proj",
    "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
IN_LAYER = re.compile(r"layers\.(\d+)\.(.+)\.weight")
# Keys of params.json, and what config.json of transformers calls them.
SIZES = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "head_dim": "head_dim",
    "hidden_dim": "intermediate_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "norm_eps": "rms_norm_eps",
    "vocab_size": "vocab_size",
}
FURTHER = {
    "rope_theta": "rope_theta",
    "sliding_window": "sliding_window",
    "max_seq_len": "max_position_embeddings",
    "max_position_embeddings": "max_position_embeddings",
    "tied_embeddings": "tie_word_embeddings",
}
PASSED_OVER = ("model_type", "max_batch_size", "model_parallel", "use_cache", "causal")
MAX_POSITIONS = 32_768  # where the file does not say
END = 2  # of Mistral's tokenizers, all of which have `</s>` there


def is_of_mistral(names: Collection[str]) -> bool:
    """Whether a folder with these names has such a network, and no config.json beside it."""
    has_weights = any(name in names for name in file_names.CONSOLIDATED)
    return has_weights and file_names.PARAMS_FILE in names and file_names.CONFIG_FILE not in names


def config_of(folder: Path) -> dict[str, Any]:
    """The config.json of transformers for params.json. Raises `CheckpointError`."""
    path = folder / file_names.PARAMS_FILE
    with fields_of(path, read_object(path)) as values:
        others = [
            name
            for name, value in values.items()
            if name not in (*SIZES, *FURTHER, *PASSED_OVER) and value is not None
        ]
        if others:
            raise CheckpointError(
                f"{path}: {others[0]} is {shown(values[others[0]])}, which is not supported; "
                "import the folder of transformers (config.json and model.safetensors) instead"
            )
        config = {ours: values[name] for name, ours in SIZES.items()}
        stated = {ours: values[name] for name, ours in FURTHER.items() if name in values}
    return {
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "hidden_act": "silu",
        "max_position_embeddings": MAX_POSITIONS,
        "rope_theta": 10_000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": END,
        **config,
        **stated,
    }


@contextmanager
def as_transformers(folder: Path) -> Iterator[Path]:
    """The folder; for one of Mistral's form a folder of links to its files, with a config.json."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if not is_of_mistral(names):
        yield folder
        return
    config = config_of(folder)
    with TemporaryDirectory(prefix="attendant-mistral-") as made:
        for name in names:
            os.symlink((folder / name).absolute(), Path(made) / name)
        (Path(made) / file_names.CONFIG_FILE).write_text(json.dumps(config), encoding="utf-8")
        yield Path(made)


def by_transformers_names(tensors: Mapping[str, Any], folder: Path, path: Path) -> dict[str, Any]:
    """The tensors as transformers stores them. Raises `CheckpointError` for a name of no network.

    `folder` has the config.json that says the number of heads.
    """
    config = folder / file_names.CONFIG_FILE
    with fields_of(config, read_object(config)) as values:
        heads = int(values["num_attention_heads"])
        key_heads = int(values.get("num_key_value_heads") or heads)
    renamed = {}
    for stored, tensor in tensors.items():
        match = IN_LAYER.fullmatch(stored)
        if match is not None and match[2] in LAYER:
            name = f"model.layers.{match[1]}.{LAYER[match[2]]}.weight"
        elif stored in OUTSIDE:
            name = OUTSIDE[stored]
        else:
            raise CheckpointError(
                f"{path}: {stored} is no weight of a decoder in Mistral's form; import the folder "
                "of transformers (config.json and model.safetensors) instead"
            )
        rotated = {"q_proj.weight": heads, "k_proj.weight": key_heads}
        number = next((n for end, n in rotated.items() if name.endswith(end)), 0)
        renamed[name] = _in_halves(tensor, number) if number else tensor
    return renamed


def _in_halves(tensor: Any, heads: int) -> Any:  # noqa: ANN401 - a tensor
    """Rows of each head with the first numbers of all pairs in front, as transformers rotates."""
    pairs = tensor.reshape(heads, tensor.shape[0] // heads // 2, 2, tensor.shape[1])
    return pairs.transpose(1, 2).reshape(tensor.shape)
