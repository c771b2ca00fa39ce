"""ONNX Runtime's `PagedAttention` in NumPy, and a decoder of one layer that computes with it.

The operator has no kernel for the CPU in the pinned version. This is written after its schema
(com.microsoft, version 1; `onnxruntime.capi` lists it) and computes in float64, so that equal means
equal but for the order of sums.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: N tokens, H heads, K heads of keys, D sizes

from dataclasses import dataclass, field

import numpy as np

from service.errors import ModelFailed
from service.generation.decoder_interface import PackedInputs

SKIP = -1  # a slot that is not written to


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """The operator with its attributes."""

    num_heads: int
    kv_num_heads: int
    scale: float | None = None
    do_rotary: bool = False
    local_window_size: int = -1
    softcap: float = 0.0

    def __call__(
        self,
        query: np.ndarray,
        key: np.ndarray,
        value: np.ndarray,
        key_cache: np.ndarray,
        value_cache: np.ndarray,
        cumulative_sequence_length: np.ndarray,
        past_seqlens: np.ndarray,
        block_table: np.ndarray,
        cos_cache: np.ndarray | None = None,
        sin_cache: np.ndarray | None = None,
        slot_mapping: np.ndarray | None = None,
    ) -> np.ndarray:
        """Attention of packed tokens [N, heads * size]; the caches change in place."""
        num_tokens = len(query)
        size = query.shape[1] // self.num_heads
        q_NHD = query.reshape(num_tokens, self.num_heads, size)
        k_NKD = key.reshape(num_tokens, self.kv_num_heads, size)
        v_NKD = value.reshape(num_tokens, self.kv_num_heads, size)
        output = np.zeros_like(q_NHD)
        starts = cumulative_sequence_length
        for row, past in enumerate(past_seqlens.tolist()):
            own = slice(int(starts[row]), int(starts[row + 1]))
            q, k, v = q_NHD[own], k_NKD[own], v_NKD[own]
            positions = np.arange(past, past + len(q))
            if self.do_rotary:
                assert cos_cache is not None
                assert sin_cache is not None
                q = _rotated(q, cos_cache[positions], sin_cache[positions])
                k = _rotated(k, cos_cache[positions], sin_cache[positions])
            slots = _slots(block_table[row], positions, key_cache.shape[1])
            written = slots if slot_mapping is None else slot_mapping[own]
            is_kept = written != SKIP
            _flat(key_cache)[written[is_kept]] = k[is_kept]
            _flat(value_cache)[written[is_kept]] = v[is_kept]
            before = _slots(block_table[row], np.arange(past), key_cache.shape[1])
            all_k = np.concatenate([_flat(key_cache)[before], k])
            all_v = np.concatenate([_flat(value_cache)[before], v])
            output[own] = self._attend(q, all_k, all_v, positions)
        return output.reshape(num_tokens, -1)

    def _attend(
        self, q_SHD: np.ndarray, k_TKD: np.ndarray, v_TKD: np.ndarray, positions: np.ndarray
    ) -> np.ndarray:
        group = self.num_heads // self.kv_num_heads
        scale = self.scale or q_SHD.shape[-1] ** -0.5
        k_THD, v_THD = np.repeat(k_TKD, group, axis=1), np.repeat(v_TKD, group, axis=1)
        scores_HST = scale * np.einsum("shd,thd->hst", q_SHD, k_THD)
        if self.softcap:
            scores_HST = self.softcap * np.tanh(scores_HST / self.softcap)
        distance_ST = positions[:, None] - np.arange(len(k_TKD))
        is_seen = distance_ST >= 0
        if self.local_window_size > 0:
            is_seen &= distance_ST < self.local_window_size
        scores_HST = np.where(is_seen, scores_HST, -np.inf)
        weights = np.exp(scores_HST - scores_HST.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended: np.ndarray = np.einsum("hst,thd->shd", weights, v_THD)
        return attended


@dataclass
class PagedDecoder:
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
            _flat(self.key_cache)[slots] = np.nan
            _flat(self.value_cache)[slots] = np.nan
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
    parts = [_slots(blocks, np.arange(past, past + n), block_size) for blocks, past, n in rows]
    return np.concatenate(parts)


def _slots(blocks: np.ndarray, positions: np.ndarray, block_size: int) -> np.ndarray:
    """The places of a sequence's tokens in a cache without its block axis."""
    own = blocks[positions // block_size]
    assert (own >= 0).all(), "a token without a block"
    slots: np.ndarray = own * block_size + positions % block_size
    return slots


def _flat(cache: np.ndarray) -> np.ndarray:
    """[blocks * block size, heads, size], the same memory."""
    flat: np.ndarray = cache.reshape(-1, *cache.shape[2:])
    return flat


def _rotated(x_SHD: np.ndarray, cos_SR: np.ndarray, sin_SR: np.ndarray) -> np.ndarray:
    """Rotary positions, the halves of each head as pairs."""
    one, other = np.split(x_SHD, 2, axis=-1)
    cos, sin = cos_SR[:, None], sin_SR[:, None]
    return np.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)
