"""A decoder of one layer over blocks, computed in NumPy."""

from dataclasses import dataclass, field

import numpy as np

from export.checks.paged_attention import PagedAttention, flat, slots_of_row
from service.errors import ModelFailed
from service.generation.decoders import decoder_interface
from service.generation.steps.packed_scheduler import PackedInputs


@dataclass
class PagedDecoder(decoder_interface.PagedDecoder):
    """One layer of attention over random weights, whose likeliest tokens depend on all before."""

    num_blocks: int
    block_size: int
    max_rows: int = 1
    max_tokens: int = 1_024
    vocab_size: int = 29
    num_heads: int = 4
    kv_num_heads: int = 2
    head_size: int = 8
    fails: bool = False
    attention: PagedAttention = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(1)
        width = self.num_heads * self.head_size
        self.attention = PagedAttention(self.num_heads, self.kv_num_heads, do_rotary=True)
        self._table_VW = random.normal(size=(self.vocab_size, width))
        self._q = random.normal(size=(width, width)) / width**0.5
        kv_width = self.kv_num_heads * self.head_size
        self._k = random.normal(size=(width, kv_width)) / width**0.5
        self._v = random.normal(size=(width, kv_width)) / width**0.5
        self._out_WV = random.normal(size=(width, self.vocab_size))
        angles = np.outer(
            np.arange(self.max_tokens), 100.0 ** -np.linspace(0, 1, self.head_size // 2)
        )
        self._cos, self._sin = np.cos(angles), np.sin(angles)
        sizes = (self.num_blocks, self.block_size, self.kv_num_heads, self.head_size)
        # What was never written must not be read: it would spoil every output.
        self.key_cache, self.value_cache = np.full(sizes, np.nan), np.full(sizes, np.nan)

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        for cache in (self.key_cache, self.value_cache):
            cache[target, :num_tokens] = cache[source, :num_tokens]

    def run(self, inputs: PackedInputs) -> np.ndarray:
        """Logits [wanted, V]; fails where it is told to, with anything left behind."""
        slots = slots_of(inputs, self.block_size)
        assert len(set(slots.tolist())) == len(slots), "two tokens are written to one place"
        if self.fails:
            flat(self.key_cache)[slots] = np.nan
            flat(self.value_cache)[slots] = np.nan
            raise ModelFailed("as it was told to")
        x = self._table_VW[inputs.input_ids]
        attended = self.attention(
            x @ self._q,
            x @ self._k,
            x @ self._v,
            self.key_cache,
            self.value_cache,
            inputs.cumulative_sequence_length,
            inputs.past_seqlens,
            inputs.block_table,
            self._cos,
            self._sin,
        )
        logits: np.ndarray = (x + attended)[inputs.logit_positions] @ self._out_WV
        return logits.astype(np.float32)

    def alone(self, token_ids: np.ndarray) -> np.ndarray:
        """Logits [N, V] after each of these tokens, all computed at once over a fresh cache."""
        num_tokens = len(token_ids)
        fresh = PagedDecoder(1, num_tokens, vocab_size=self.vocab_size)
        inputs = PackedInputs(
            input_ids=token_ids,
            position_ids=np.arange(num_tokens),
            cumulative_sequence_length=np.array([0, num_tokens], np.int32),
            past_seqlens=np.zeros(1, np.int32),
            block_table=np.zeros((1, 1), np.int32),
            logit_positions=np.arange(num_tokens),
        )
        return fresh.run(inputs)


def slots_of(inputs: PackedInputs, block_size: int) -> np.ndarray:
    """The slots that a run writes to, of all rows."""
    counts = np.diff(inputs.cumulative_sequence_length)
    rows = zip(inputs.block_table, inputs.past_seqlens.tolist(), counts.tolist(), strict=True)
    parts = [
        slots_of_row(blocks, np.arange(past, past + n), block_size) for blocks, past, n in rows
    ]
    return np.concatenate(parts)
