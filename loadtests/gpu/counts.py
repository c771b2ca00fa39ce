"""The arithmetic and the memory traffic that a model's work cannot do without.

Pure: sizes in, numbers out. A multiplication and an addition count as two operations. What is
counted is what the network defines, not what an engine does: padding, copies, and layers that are
computed for tokens which are not read count for no one, so that the share of a machine's limit is
of useful work.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from models.networks.encoder import EncoderConfig
from models.networks.gpt import GPTConfig
from models.networks.llama import LlamaConfig

LOGIT_BYTES = 4  # logits leave every graph as float32


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a transformer that its work follows from."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    intermediate_size: int
    num_projections: int = 2  # of the feed-forward part; 3 where it is gated

    @classmethod
    def of(cls, config: EncoderConfig | GPTConfig | LlamaConfig) -> Self:
        """The sizes of a network of ours."""
        num_kv_heads, head_size = config.num_heads, config.hidden_size // config.num_heads
        num_projections = 2
        if isinstance(config, LlamaConfig):
            num_kv_heads, head_size, num_projections = config.num_kv_heads, config.head_size, 3
        return cls(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            intermediate_size=config.intermediate_size,
            num_projections=num_projections,
        )

    @property
    def layer_weights(self) -> int:
        """Weights of the matrices of one layer."""
        query_and_output = 2 * self.hidden_size * self.num_heads * self.head_size
        key_and_value = 2 * self.hidden_size * self.num_kv_heads * self.head_size
        feed_forward = self.num_projections * self.hidden_size * self.intermediate_size
        return query_and_output + key_and_value + feed_forward

    @property
    def matrix_weights(self) -> int:
        """Weights of the matrices of all layers."""
        return self.num_layers * self.layer_weights

    @property
    def output_weights(self) -> int:
        """Weights of the output layer of a decoder."""
        return self.vocab_size * self.hidden_size

    @property
    def cached_values(self) -> int:
        """Numbers that the cache has for a token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_size


def encoder_flops(sizes: Sizes, lengths: Sequence[int]) -> int:
    """Operations of an encoder's layers for rows of these lengths."""
    # Each token attends to all of its row: a product with the keys, and one with the values.
    attention = 4 * sizes.num_heads * sizes.head_size * sum(each * each for each in lengths)
    return sum(lengths) * 2 * sizes.matrix_weights + sizes.num_layers * attention


def step_bytes(sizes: Sizes, num_rows: int, num_past: int, value_bytes: int) -> int:
    """Bytes that a decoding step reads and writes: weights once, caches, and logits.

    `value_bytes` is the size of a weight and of a cached number.
    """
    weights = sizes.matrix_weights + sizes.output_weights
    cached = num_rows * (num_past + 1) * sizes.cached_values  # all are read, the last is written
    logits = num_rows * sizes.vocab_size * LOGIT_BYTES
    return (weights + cached + num_rows * sizes.cached_values) * value_bytes + logits


def cache_bytes(sizes: Sizes, num_rows: int, num_tokens: int, value_bytes: int) -> int:
    """Bytes of the keys and values of rows of `num_tokens` tokens."""
    return num_rows * num_tokens * sizes.cached_values * value_bytes
