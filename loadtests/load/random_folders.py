"""Folders of Llamas of any size with random weights, written tensor by tensor.

The memory is that of one tensor, so a folder of 16 GB is written on a small machine. Values are
drawn once, and each tensor takes them from another place on. The shapes are those of models that
people bring; the context is shorter than theirs.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadtests.load.byte_pairs import write_byte_pairs

CONTEXT = 2_048
POOL = 4_194_301  # values that are drawn: a prime, so that no two rows of a tensor are equal
SHARD_BYTES = 4 * 10**9
ADDED = 0.05  # of what each layer adds, so that deep networks stay in range


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a Llama."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int

    @property
    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], float]]:
        """Names, sizes and standard deviations; 0 for a norm, whose values are 1."""
        width, inner = self.hidden_size, self.intermediate_size
        of_keys = width // self.num_heads * self.num_kv_heads
        usual = width**-0.5
        yield "model.embed_tokens.weight", (self.vocab_size, width), 1.0
        for layer in range(self.num_layers):
            name = f"model.layers.{layer}"
            yield f"{name}.self_attn.q_proj.weight", (width, width), usual
            yield f"{name}.self_attn.k_proj.weight", (of_keys, width), usual
            yield f"{name}.self_attn.v_proj.weight", (of_keys, width), usual
            yield f"{name}.self_attn.o_proj.weight", (width, width), ADDED * usual
            yield f"{name}.mlp.gate_proj.weight", (inner, width), usual
            yield f"{name}.mlp.up_proj.weight", (inner, width), usual
            yield f"{name}.mlp.down_proj.weight", (width, inner), ADDED * inner**-0.5
            yield f"{name}.input_layernorm.weight", (width,), 0.0
            yield f"{name}.post_attention_layernorm.weight", (width,), 0.0
        yield "model.norm.weight", (width,), 0.0
        yield "lm_head.weight", (self.vocab_size, width), usual

    @property
    def config(self) -> dict[str, object]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "bos_token_id": 0,
            "eos_token_id": 0,
            "torch_dtype": "bfloat16",
        }


SHAPES = {
    "tiny": Shape(512, 64, 128, 2, 4, 2),
    "1b": Shape(32_000, 2_048, 5_632, 22, 32, 4),  # TinyLlama's
    "8b": Shape(128_256, 4_096, 14_336, 32, 32, 8),  # Llama 3.1's
}


def write_folder(folder: Path, name: str, shard_bytes: int = SHARD_BYTES) -> Path:
    """The folder of that size below, which is made unless it is there whole, in bfloat16."""
    target, shape = folder / name, SHAPES[name]
    if (target / "config.json").is_file():  # written last
        return target
    target.mkdir(parents=True, exist_ok=True)
    shards: list[list[tuple[str, tuple[int, ...], float]]] = [[]]
    size = 0
    for tensor in shape.tensors:
        num_bytes = 2 * int(np.prod(tensor[1]))
        if size + num_bytes > shard_bytes and shards[-1]:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += num_bytes
    pool = np.random.default_rng(1).standard_normal(POOL, np.float32)
    weight_map: dict[str, str] = {}
    num_written = 0
    for number, tensors in enumerate(shards, start=1):
        whole = len(shards) == 1
        file = (
            "model.safetensors" if whole else f"model-{number:05}-of-{len(shards):05}.safetensors"
        )
        _write_shard(target / file, tensors, pool, num_written)
        num_written += len(tensors)
        weight_map |= {tensor: file for tensor, _, _ in tensors}
    if len(shards) > 1:
        (target / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {}, "weight_map": weight_map})
        )
    write_byte_pairs(target, shape.vocab_size, CONTEXT)
    (target / "config.json").write_text(json.dumps(shape.config, indent=1))
    return target


def _write_shard(
    path: Path, tensors: list[tuple[str, tuple[int, ...], float]], pool: np.ndarray, first: int
) -> None:
    """Write tensors, of which the first is the one of this number of the folder."""
    header, end = {}, 0
    for name, shape, _ in tensors:
        start, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for index, (_, shape, deviation) in enumerate(tensors, start=first):
            values = np.roll(pool, 1_009 * index) * deviation if deviation else np.ones(POOL, "f4")
            rounded = (values.view(np.uint32) >> 16).astype(np.uint16)  # bfloat16, towards zero
            left = int(np.prod(shape))
            while left:
                part = rounded[:left]
                file.write(part.tobytes())
                left -= len(part)
