"""GGUF files of tiny networks, written as llama.cpp's convert_hf_to_gguf.py writes them.

Names of tensors are those of gguf's own maps, which the import does not use.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}  # others have transformers' name
PERMUTED = ("llama", "granite", "smollm3")
ADDS_ONE = ("gemma", "gemma2", "gemma3")
KEYS = {
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "block_count",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale",
    "logits_scaling": "logit_scale",
}
TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": ["t", "u", "tu", *(f"<{index}>" for index in range(3, 40))],
    "tokenizer.ggml.token_type": [1] * 40,
    "tokenizer.ggml.merges": ["t u"],
    "tokenizer.ggml.eos_token_id": 3,
}


def write_gguf(
    model: Any,
    path: Path,
    kind: str = "F32",
    further: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Write the network with matrices of a type, and return its weights as that type has them."""
    config = model.config.to_dict()
    architecture = ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, architecture)
    for field, key in KEYS.items():
        if config.get(field) is not None:
            add(writer, f"{architecture}.{key}", config[field])
    theta = (
        config["rope_parameters"].get("rope_theta")
        or config["rope_parameters"]["full_attention"]["rope_theta"]
    )
    add(writer, f"{architecture}.rope.freq_base", float(theta))
    for key, value in {**TOKENIZER, **(further or {})}.items():
        add(writer, key, value)
    names = gguf.get_tensor_name_map(
        next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture),
        config["num_hidden_layers"],
    )
    stored: dict[str, Array] = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        weight: Array = tensor.float().numpy()
        module, end = name.rsplit(".", 1)
        changed = to_llama_cpp(weight, name, config, architecture)
        type_of = gguf.GGMLQuantizationType[type_in(kind, name) if weight.ndim > 1 else "F32"]
        data = blocks_of(changed, type_of)
        writer.add_tensor(f"{names.get_name(module)}.{end}", data, raw_dtype=type_of)
        values = gguf.quants.dequantize(data, type_of).reshape(changed.shape)
        stored[name] = from_llama_cpp(values, name, config, architecture)
    for name, weight in (tensors or {}).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def type_in(kind: str, name: str) -> str:
    """The type of a weight; Q4_K_M is a mix of two."""
    if kind != "Q4_K_M":
        return kind
    is_finer = any(part in name for part in ("v_proj", "down_proj", "embed_tokens", "lm_head"))
    return "Q6_K" if is_finer else "Q4_K"


def blocks_of(weight: Array, kind: gguf.GGMLQuantizationType) -> NDArray[np.uint8]:
    """The weight in blocks; in those that gguf cannot write, random numbers of its size."""
    if not kind.name.endswith("_K"):
        return np.asarray(gguf.quants.quantize(weight, kind))
    in_block, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(weight.size)
    blocks = generator.integers(0, 256, (weight.size // in_block, num_bytes), dtype=np.uint8)
    for place, value in {"Q4_K": {0: 7e-4, 2: 5e-3}, "Q6_K": {208: 1e-4}}[kind.name].items():
        blocks[:, place : place + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    return blocks.reshape(len(weight), -1)


def add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _heads(name: str, config: Mapping[str, Any], architecture: str) -> int:
    if architecture not in PERMUTED:
        return 0
    fields = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    return next((config[field] for part, field in fields.items() if part in name), 0)


def to_llama_cpp(weight: Array, name: str, config: Mapping[str, Any], architecture: str) -> Array:
    heads = _heads(name, config, architecture)
    if heads:
        halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        weight = halves.swapaxes(1, 2).reshape(weight.shape)
    return weight + 1 if architecture in ADDS_ONE and name.endswith("norm.weight") else weight


def from_llama_cpp(weight: Array, name: str, config: Mapping[str, Any], architecture: str) -> Array:
    heads = _heads(name, config, architecture)
    if heads:
        pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
        weight = pairs.swapaxes(1, 2).reshape(weight.shape)
    return weight - 1 if architecture in ADDS_ONE and name.endswith("norm.weight") else weight
