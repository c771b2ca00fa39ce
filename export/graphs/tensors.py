"""Tensors of graphs that are made when they are read, of weights that stay in their files.

In a graph such a tensor is a reference, as ONNX has it for data in another file; in the place of a
file's name it has a key of the tensor, so copies of graphs share it. `array_of` makes its numbers
anew each time, so the caller forgets them before it reads the next. Tensors with one key have the
same numbers. What is made of such a tensor, as its rounded weights, is made later too. Once they
are written, references name the file, which is mapped.

All of it is kept until the export ends that `made_later` is entered for.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
MARK = "made later"  # in the place of a file's name: no file has it
SLAB_NUMBERS = 2**22  # of a matrix that are converted at once: 16 MiB


@dataclass(frozen=True, slots=True)
class Later:
    """A tensor's numbers: all of it, or some columns or rows of a matrix."""

    make: Callable[[], Array]
    columns: Callable[[slice], Array] | None = None
    rows: Callable[[slice], Array] | None = None


class _Kept:
    """Tensors of an export by their keys, and a folder for those that were written."""

    def __init__(self, near: Path | None = None) -> None:
        self.tensors: dict[str, Later] = {}
        self._near = near
        self._made: TemporaryDirectory[str] | None = None
        self._num_folders = 0
        self._new: list[Path] = []  # folders that were made for `near`, the outermost last

    def new_folder(self) -> Path:
        if self._made is None:
            if self._near is not None:
                self._new = [
                    each for each in (self._near, *self._near.parents) if not each.exists()
                ]
                self._near.mkdir(parents=True, exist_ok=True)
            self._made = TemporaryDirectory(prefix=".graphs-", dir=self._near)
        self._num_folders += 1
        folder = Path(self._made.name) / str(self._num_folders)
        folder.mkdir()
        return folder

    def end(self) -> None:
        if self._made is not None:
            self._made.cleanup()
            with suppress(OSError):  # where an export was written, they are not empty
                for folder in self._new:
                    folder.rmdir()


_OUTSIDE = _Kept()  # where no export is entered, as in tests
_KEPT: ContextVar[_Kept] = ContextVar("made_later", default=_OUTSIDE)


@contextmanager
def made_later(near: Path | None = None) -> Iterator[None]:
    """While entered, tensors of graphs may be made later; afterwards none of them can be read.

    What is written of them meanwhile is in a folder within `near`.
    """
    kept = _Kept(near)
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)
        kept.end()


def new_folder() -> Path:
    """An empty folder that is removed when the export ends."""
    return _KEPT.get().new_folder()


def later(
    name: str, shape: Sequence[int], dtype: DTypeLike, key: str, source: Later
) -> TensorProto:
    """A tensor that is made when it is read."""
    _KEPT.get().tensors[key] = source
    reference = TensorProto(name=name, dims=shape, data_location=TensorProto.EXTERNAL)
    reference.data_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for field, value in (("location", MARK), ("checksum", key)):
        reference.external_data.add(key=field, value=value)
    return reference


def key_of(tensor: TensorProto) -> str | None:
    """The key of a tensor that is made later; None of any other."""
    fields = {each.key: each.value for each in tensor.external_data}
    return fields["checksum"] if fields.get("location") == MARK else None


def file_of(tensor: TensorProto) -> Path | None:
    """The file of this export that has a tensor's numbers; None of any other tensor.

    Graphs that came with files of their own name them by relative paths.
    """
    fields = {each.key: each.value for each in tensor.external_data}
    path = Path(fields.get("location", ""))
    return path if path.is_absolute() else None


def is_elsewhere(tensor: TensorProto) -> bool:
    """Whether a tensor of this export is made later, or is in a file of it."""
    return key_of(tensor) is not None or file_of(tensor) is not None


def array_of(tensor: TensorProto) -> Array:
    """The numbers of a tensor."""
    key, file = key_of(tensor), file_of(tensor)
    if key is not None:
        return _KEPT.get().tensors[key].make()
    if file is None:
        return numpy_helper.to_array(tensor)
    offset = next(int(each.value) for each in tensor.external_data if each.key == "offset")
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return np.memmap(file, dtype, "r", offset, tuple(tensor.dims))


def filled(tensor: TensorProto) -> TensorProto:
    """The tensor with its numbers in it."""
    if not is_elsewhere(tensor):
        return tensor
    return numpy_helper.from_array(np.ascontiguousarray(array_of(tensor)), tensor.name)


def bytes_of(tensor: TensorProto) -> bytes | memoryview:
    """The numbers of a tensor as a file has them."""
    if not is_elsewhere(tensor):
        assert tensor.raw_data, "large tensors come from arrays, which have their bytes as they are"
        return tensor.raw_data
    flat = np.ascontiguousarray(array_of(tensor)).reshape(-1)
    return flat.view(np.uint8).data


def size_of(tensor: TensorProto) -> int:
    """The number of bytes of a tensor; 0 of one in a file that the graph came with."""
    if tensor.external_data and not is_elsewhere(tensor):
        return 0
    return math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def slabs(tensor: TensorProto, num_together: int = SLAB_NUMBERS) -> Iterator[tuple[slice, Array]]:
    """A matrix [K, N] by some of its columns at a time, which have up to this many numbers."""
    num_rows, num_columns = tensor.dims
    key = key_of(tensor)
    columns = None if key is None else _KEPT.get().tensors[key].columns
    if columns is None:
        whole = array_of(tensor)

        def columns(part: slice) -> Array:
            return whole[:, part]

    step = max(1, num_together // num_rows)
    for start in range(0, num_columns, step):
        part = slice(start, min(start + step, num_columns))
        yield part, columns(part)


def derived(
    source: TensorProto,
    what: str,
    likes: Sequence[tuple[str, Sequence[int], DTypeLike]],
    make: Callable[[], Sequence[Array]],
) -> list[TensorProto]:
    """Tensors that are made together of another: later where that one is, else now.

    `what` tells them from others that are made of it; `likes` are their names, shapes and types.
    """
    key = key_of(source)
    if key is None:
        arrays = make()
        return [
            numpy_helper.from_array(array, like[0])
            for like, array in zip(likes, arrays, strict=True)
        ]
    together = _Together(make)
    return [
        later(name, shape, dtype, f"{key}|{what}.{place}", Later(together.taker(place)))
        for place, (name, shape, dtype) in enumerate(likes)
    ]


class _Together:
    """Arrays that are made at once; each is held until it was taken."""

    def __init__(self, make: Callable[[], Sequence[Array]]) -> None:
        self._make = make
        self._made: dict[int, Array] = {}

    def taker(self, place: int) -> Callable[[], Array]:
        def take() -> Array:
            if place not in self._made:
                self._made = dict(enumerate(self._make()))
            return self._made.pop(place)

        return take


def transposed(source: TensorProto, name: str) -> TensorProto:
    """The transpose of a matrix."""
    key = key_of(source)
    if key is None:
        return numpy_helper.from_array(np.ascontiguousarray(array_of(source).T), name)
    original = _KEPT.get().tensors[key]

    def make() -> Array:
        return np.ascontiguousarray(original.make().T)

    def columns(part: slice) -> Array:
        assert original.rows is not None, "columns are given only where there are rows"
        return original.rows(part).T

    dtype = helper.tensor_dtype_to_np_dtype(source.data_type)
    made = Later(make, columns if original.rows else None)
    return later(name, source.dims[::-1], dtype, f"{key}|transposed", made)


def scaled(source: TensorProto, rows_by: Array | None, columns_by: Array | None) -> TensorProto:
    """A weight with its rows, and its columns or values, multiplied by these factors."""
    factors = [each for each in (rows_by, columns_by) if each is not None]

    def by(weight: Array, columns: slice = slice(None)) -> Array:
        whole = weight if rows_by is None else weight * rows_by[:, None]
        return whole if columns_by is None else whole * columns_by[columns]

    key = key_of(source)
    if key is None:
        return numpy_helper.from_array(by(array_of(source)), source.name)
    original = _KEPT.get().tensors[key]

    def columns(part: slice) -> Array:
        assert original.columns is not None, "columns are given only where there are columns"
        return by(original.columns(part), part)

    digest = hashlib.sha256(b"".join(each.tobytes() for each in factors)).hexdigest()
    made = Later(lambda: by(original.make()), columns if original.columns else None)
    dtype = helper.tensor_dtype_to_np_dtype(source.data_type)
    return later(source.name, source.dims, dtype, f"{key}|scaled {digest}", made)
