"""Memory of a decoder's cache and logits: the host's, as NumPy arrays, or a device's.

`DeviceMemory` of `device_memory.py` does the same for a device. Knows nothing of what is computed.
One thread only.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from service.contract.tensors import Arrays, Datatype
from service.runtime.binding import Binding, Bound, Inputs

Spec = tuple[Sequence[int], Datatype]  # dims and type of a small output


class Graph(Protocol):
    """A session, as far as memory runs it."""

    @property
    def inputs_on_host(self) -> frozenset[str]: ...

    def run(self, inputs: Arrays, outputs: Sequence[str]) -> list[np.ndarray]: ...

    def bind(self, inputs: Mapping[str, Bound], outputs: Mapping[str, Bound]) -> Binding: ...


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads rows that runs write, and small outputs beside them."""

    rows: np.ndarray  # themselves; or, with `fetch`, their indices, int64
    fetch: Callable[[np.ndarray], np.ndarray] | None  # rows by their indices, after a run
    bound: Mapping[str, Bound]  # the small outputs, to be bound too
    read: Callable[[], Mapping[str, np.ndarray]]  # the small outputs, after a run


class Memory(Protocol):
    """Memory of a decoder's cache and logits."""

    @property
    def device(self) -> str: ...

    def zeros(self, shape: Sequence[int], datatype: Datatype) -> Bound:
        """A tensor of zeros. Raises `OutOfMemory` where there is too little."""
        ...

    def inputs(self, arrays: Arrays, on_host: Collection[str] = ()) -> Inputs:
        """Inputs of these shapes and types; those `on_host` are read there by the graph too."""
        ...

    def copy_rows(
        self, arrays: Sequence[Any], source: int, target: int, tokens: slice, axis: int
    ) -> None:
        """Copy tokens, which lie along an axis, from one entry of the first axis to another.

        Others of the target may be overwritten with the source's. Every array has the same shape.
        """
        ...

    def run_rows(
        self,
        graph: Graph,
        inputs: Arrays,
        outputs: Mapping[str, Any],
        lengths: Sequence[int],
        before: Sequence[int],
    ) -> None:
        """Run a graph of tokens [N, S], and keep its outputs [N, H, S, Dh] in rows of a cache.

        Each row has as many tokens as `lengths` says, padded behind them. The cache's had those
        of `before`, of which nothing is left. Raises `ModelFailed`.
        """
        ...

    def read_logits(self, rows: Any, beside: Mapping[str, Spec]) -> RowReader:  # noqa: ANN401 - a tensor of this memory
        """A reader of rows, float32 [N, V], and of the outputs `beside` them.

        Where whole rows are in the host's memory these are not needed, and not bound.
        """
        ...

    def prefixes(
        self, buffers: Sequence[Any], num_tokens: int, max_bytes: int
    ) -> "RowPieces | None":
        """Places in the host's memory for parts of rows; None where they cannot be copied there."""
        ...


class HostMemory:
    """NumPy arrays. Zeroed memory is not touched before it is used."""

    device = "cpu"

    def zeros(self, shape: Sequence[int], datatype: Datatype) -> np.ndarray:
        return np.zeros(shape, datatype.dtype)

    def inputs(self, arrays: Arrays, on_host: Collection[str] = ()) -> Inputs:
        del on_host
        return Inputs(dict(arrays), arrays, _send_nothing)

    def copy_rows(
        self, arrays: Sequence[Any], source: int, target: int, tokens: slice, axis: int
    ) -> None:
        place = (*[slice(None)] * (axis - 1), tokens)
        for array in arrays:
            array[(target, *place)] = array[(source, *place)]

    def run_rows(
        self,
        graph: Graph,
        inputs: Arrays,
        outputs: Mapping[str, Any],
        lengths: Sequence[int],
        before: Sequence[int],
    ) -> None:
        longest = max(lengths)
        shortened = {name: array[:, :longest] for name, array in inputs.items()}
        computed = graph.run(shortened, list(outputs))
        for kept, array in zip(outputs.values(), computed, strict=True):
            for row, (num_tokens, num_before) in enumerate(zip(lengths, before, strict=True)):
                kept[row, :, :num_tokens] = array[row, :, :num_tokens]
                kept[row, :, num_tokens:num_before] = 0.0

    def read_logits(self, rows: Any, beside: Mapping[str, Spec]) -> RowReader:  # noqa: ANN401 - an array
        del beside
        return RowReader(rows, None, {}, dict)

    def prefixes(
        self, buffers: Sequence[Any], num_tokens: int, max_bytes: int
    ) -> "RowPieces | None":
        pieces = RowPieces(buffers, num_tokens, max_bytes)
        return pieces if pieces.num_places else None


class RowPieces:
    """Copies of parts of rows: `[places, buffers, H, tokens, Dh]`.

    The memory is one array, whose pages the system gives when a place is first written to.
    """

    def __init__(self, buffers: Sequence[np.ndarray], num_tokens: int, max_bytes: int) -> None:
        """Places for tokens of buffers `[rows, H, T, Dh]` alike, as many as the bytes hold."""
        self._buffers = buffers
        self._num_tokens = num_tokens
        _, num_heads, _, head_size = buffers[0].shape
        shape = (len(buffers), num_heads, num_tokens, head_size)
        self.piece_bytes = int(np.prod(shape)) * buffers[0].dtype.itemsize
        self.num_places = max_bytes // self.piece_bytes
        self._pieces = np.empty((self.num_places, *shape), buffers[0].dtype)

    def write(self, place: int, row: int, start: int) -> None:
        """Copy a row's tokens from `start` on to a place."""
        for piece, buffer in zip(self._pieces[place], self._buffers, strict=True):
            piece[:] = buffer[row, :, start : start + self._num_tokens]

    def read(self, place: int, row: int, start: int) -> None:
        """Copy a place to a row's tokens from `start` on."""
        for piece, buffer in zip(self._pieces[place], self._buffers, strict=True):
            buffer[row, :, start : start + self._num_tokens] = piece


def _send_nothing() -> None:
    """No-op: written values are where they are read."""
