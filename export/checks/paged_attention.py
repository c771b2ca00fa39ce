"""ONNX Runtime's `PagedAttention` in NumPy.

The operator has no kernel for the CPU in the pinned version. This is written after its schema
(com.microsoft, version 1; `onnxruntime.capi` lists it) and computes in float64, so that equal means
equal but for the order of sums.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: N tokens, H heads, K heads of keys, D sizes

from dataclasses import dataclass

import numpy as np

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
    qk_norm_epsilon: float = 1e-6

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
        norms: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Attention of packed tokens [N, heads * size]; the caches change in place.

        `norms` are weights [size] for each head of queries and of keys, before they are rotated.
        """
        num_tokens = len(query)
        size = query.shape[1] // self.num_heads
        q_NHD = query.reshape(num_tokens, self.num_heads, size)
        k_NKD = key.reshape(num_tokens, self.kv_num_heads, size)
        v_NKD = value.reshape(num_tokens, self.kv_num_heads, size)
        if norms is not None:
            q_NHD = _normed(q_NHD, norms[0], self.qk_norm_epsilon)
            k_NKD = _normed(k_NKD, norms[1], self.qk_norm_epsilon)
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
            slots = slots_of_row(block_table[row], positions, key_cache.shape[1])
            written = slots if slot_mapping is None else slot_mapping[own]
            is_kept = written != SKIP
            flat(key_cache)[written[is_kept]] = k[is_kept]
            flat(value_cache)[written[is_kept]] = v[is_kept]
            before = slots_of_row(block_table[row], np.arange(past), key_cache.shape[1])
            all_k = np.concatenate([flat(key_cache)[before], k])
            all_v = np.concatenate([flat(value_cache)[before], v])
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


def slots_of_row(blocks: np.ndarray, positions: np.ndarray, block_size: int) -> np.ndarray:
    """The places of a sequence's tokens in a cache without its block axis."""
    own = blocks[positions // block_size]
    assert (own >= 0).all(), "a token without a block"
    slots: np.ndarray = own * block_size + positions % block_size
    return slots


def flat(cache: np.ndarray) -> np.ndarray:
    """[blocks * block size, heads, size], the same memory."""
    flat: np.ndarray = cache.reshape(-1, *cache.shape[2:])
    return flat


def _normed(x_NHD: np.ndarray, weight_D: np.ndarray, epsilon: float) -> np.ndarray:
    """Each head by its own root mean square."""
    squares: np.ndarray = (x_NHD**2).mean(axis=-1, keepdims=True)
    normed: np.ndarray = x_NHD / np.sqrt(squares + epsilon) * weight_D
    return normed


def _rotated(x_SHD: np.ndarray, cos_SR: np.ndarray, sin_SR: np.ndarray) -> np.ndarray:
    """Rotary positions: value i of a head's first 2R is turned with value i + R."""
    num_pairs = cos_SR.shape[-1]
    one, other, rest = np.split(x_SHD, [num_pairs, 2 * num_pairs], axis=-1)
    cos, sin = cos_SR[:, None], sin_SR[:, None]
    return np.concatenate([one * cos - other * sin, other * cos + one * sin, rest], axis=-1)
