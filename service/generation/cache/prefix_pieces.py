"""The memory of a prefix store: copies of parts of a decoder's slots, in the host's memory.

One thread only. The memory is one array, whose pages the system gives when a place is first
written to; it goes with the decoder.
"""

from collections.abc import Sequence

import numpy as np

from service.generation.cache.prefix_store import PIECE_TOKENS


class PrefixPieces:
    """Places for pieces of rows: `[places, buffers, Hkv, PIECE_TOKENS, Dh]`."""

    def __init__(self, buffers: Sequence[np.ndarray], max_bytes: int) -> None:
        """Places for buffers `[slots, Hkv, T, Dh]` alike, as many as the bytes hold."""
        self._buffers = buffers
        _, num_heads, _, head_size = buffers[0].shape
        shape = (len(buffers), num_heads, PIECE_TOKENS, head_size)
        self.piece_bytes = int(np.prod(shape)) * buffers[0].dtype.itemsize
        self.num_places = max_bytes // self.piece_bytes
        self._pieces = np.empty((self.num_places, *shape), buffers[0].dtype)

    def write(self, place: int, slot: int, start: int) -> None:
        """Copy a slot's tokens from `start` on to a place."""
        for piece, buffer in zip(self._pieces[place], self._buffers, strict=True):
            piece[:] = buffer[slot, :, start : start + PIECE_TOKENS]

    def read(self, place: int, slot: int, start: int) -> None:
        """Copy a place to a slot's tokens from `start` on."""
        for piece, buffer in zip(self._pieces[place], self._buffers, strict=True):
            buffer[slot, :, start : start + PIECE_TOKENS] = piece
