"""A small folder of Llama's kind, and what a hostile one may have in place of its parts."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors.torch import save

from tests.fakes.sentencepiece import sentencepiece_tokenizer

LONG = "x" * 2**20
VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 3, 2**31, 2**63, 10**30, 10**400, -(10**30)),
    *(0.5, -0.0, 1e-320, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
    *("", "x", "\ud800", "\x00", LONG, [], {}, [[]], ["x"], [None, None], [1] * 1_000),
    *({"rope_type": "yarn"}, {"a": {"b": []}}, [10**400], {"": LONG}),
)
hostile = st.sampled_from(VALUES)
KEPT_SIZES = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "eos_token_id": 2,
    "sliding_window": 8,
}
TOKENIZER = sentencepiece_tokenizer().to_str()


def config(kind: str = "llama") -> dict[str, Any]:
    return {
        "model_type": kind,
        **KEPT_SIZES,
        "vocab_size": len(json.loads(TOKENIZER)["model"]["vocab"]),
    }


def tensors() -> dict[str, torch.Tensor]:
    """The weights of `config()`, all ones."""
    shapes = {
        "self_attn.q_proj": (32, 32),
        "self_attn.k_proj": (16, 32),
        "self_attn.v_proj": (16, 32),
        "self_attn.o_proj": (32, 32),
        "mlp.gate_proj": (48, 32),
        "mlp.up_proj": (48, 32),
        "mlp.down_proj": (32, 48),
        "input_layernorm": (32,),
        "post_attention_layernorm": (32,),
    }
    words = (config()["vocab_size"], 32)
    outside = {"model.embed_tokens": words, "lm_head": words, "model.norm": (32,)}
    layers = {f"model.layers.{i}.{name}": each for i in range(2) for name, each in shapes.items()}
    return {f"{name}.weight": torch.ones(shape) for name, shape in (outside | layers).items()}


def write_folder(folder: Path, kind: str = "llama", **changes: Any) -> Path:
    """A folder that can be imported but for the changes of its config.json."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(kind) | changes))
    (folder / "tokenizer.json").write_text(TOKENIZER)
    (folder / "model.safetensors").write_bytes(save(tensors()))
    return folder


def safetensors_file(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A file with that header, which may state another length than it has."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    stated = len(text) if length is None else length
    return struct.pack("<Q", stated) + text + data


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """A JSON document with a hostile value at some place of it."""
    place = document
    path: list[Any] = []
    while isinstance(place, Mapping | list) and place:
        keys = list(place) if isinstance(place, Mapping) else range(min(len(place), 4))
        path.append(draw(st.sampled_from(list(keys)[:40])))
        place = place[path[-1]]
        if draw(st.booleans()):
            break
    return _replaced(document, path, draw(hostile))


def _replaced(document: Any, path: list[Any], value: Any) -> Any:
    if not path:
        return value
    first, *rest = path
    copy = dict(document) if isinstance(document, Mapping) else list(document)
    copy[first] = _replaced(document[first], rest, value)
    return copy
