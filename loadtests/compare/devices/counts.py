"""The arithmetic and the memory traffic that a model's work needs at least.

Pure: sizes in, numbers out. A multiplication and an addition count as two operations. Only what
the network defines is counted. Padding, copies, and layers that an engine computes for tokens which
are not read are left out, so that the share of a machine's limit is of useful work.
"""

from collections.abc import Sequence
from typing import TypeAlias

from models.networks.encoder import EncoderConfig
from models.networks.gpt import GPTConfig
from models.networks.llama import LlamaConfig

LOGIT_BYTES = 4  # logits leave every graph as float32
DecoderConfig: TypeAlias = GPTConfig | LlamaConfig


def matrix_weights(config: EncoderConfig | DecoderConfig) -> int:
    """Weights of the matrices of all layers."""
    hidden_size = config.hidden_size
    values, shared_values = hidden_size, hidden_size  # of queries, and of keys
    if isinstance(config, LlamaConfig):
        values, shared_values = (
            heads * config.head_size for heads in (config.num_heads, config.num_kv_heads)
        )
    num_projections = 3 if isinstance(config, LlamaConfig) else 2  # 3 where they are gated
    feed_forward = num_projections * config.intermediate_size
    return config.num_layers * hidden_size * (2 * values + 2 * shared_values + feed_forward)


def cached_values(config: DecoderConfig) -> int:
    """Numbers that the cache has for a token."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_size


def encoder_flops(config: EncoderConfig, lengths: Sequence[int]) -> int:
    """Operations of an encoder's layers for rows of these lengths."""
    # Each token attends to all of its row: a product with the keys, and one with the values.
    attention = 4 * config.hidden_size * sum(each * each for each in lengths)
    return sum(lengths) * 2 * matrix_weights(config) + config.num_layers * attention


def step_bytes(config: DecoderConfig, num_rows: int, num_past: int, value_bytes: int) -> int:
    """Bytes that a decoding step reads and writes: weights once, caches, and logits.

    `value_bytes` is the size of a weight and of a cached number.
    """
    weights = matrix_weights(config) + config.vocab_size * config.hidden_size
    cached = num_rows * (num_past + 1) * cached_values(config)  # all are read, the last is written
    logits = num_rows * config.vocab_size * LOGIT_BYTES
    return (weights + cached + num_rows * cached_values(config)) * value_bytes + logits


def cache_bytes(config: DecoderConfig, num_rows: int, num_tokens: int, value_bytes: int) -> int:
    """Bytes of the keys and values of rows of `num_tokens` tokens."""
    return num_rows * num_tokens * cached_values(config) * value_bytes
