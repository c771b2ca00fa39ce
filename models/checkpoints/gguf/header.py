"""The header of a GGUF file: its keys, and where its tensors lie.

Follows docs/gguf.md of ggml. Every length is compared with what is left of the file before it is
used, so that reading takes time and memory by the size of the header alone. The package gguf reads
headers too, but took 24 s for the vocabulary of Qwen (0.3 s here), and does not end where a damaged
file states a long array.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = b"GGUF"
VERSIONS = (2, 3)
TEXT, ARRAY = 8, 9  # kinds of values
# Types of scalars by their kind.
SCALARS: Mapping[int, str] = dict(
    zip(range(8), ("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?"), strict=True)
) | {10: "<u8", 11: "<i8", 12: "<f8"}
MAX_HEADER_BYTES = 256 * 2**20
MAX_AXES = 4


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor's shape, with the outermost size first, its type's number, and its first byte."""

    shape: tuple[int, ...]
    type_number: int
    start: int


@dataclass(frozen=True, slots=True)
class Header:
    """The keys of a file and the places of its tensors, by their names."""

    keys: Mapping[str, Any]
    tensors: Mapping[str, TensorPlace]


def read_header(path: Path) -> Header:
    """Raises ValueError for a file that is no whole GGUF file, and OSError."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            raise ValueError("it is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).header()


class _Reader:
    """Values one after the other from the beginning of a file."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._place = 0
        self._end = min(len(data), MAX_HEADER_BYTES)

    def header(self) -> Header:
        if self._take(4) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = self._number("<I")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, expected {VERSIONS[0]} or {VERSIONS[1]}")
        num_tensors, num_keys = self._number("<Q"), self._number("<Q")
        keys: dict[str, Any] = {}
        for _ in range(num_keys):
            name = self._text()
            keys[name] = self._value(self._number("<I"))
        listed: dict[str, TensorPlace] = {}
        for _ in range(num_tensors):
            name, num_axes = self._text(), self._number("<I")
            if num_axes > MAX_AXES:
                raise ValueError(f"{name[:100]} has {num_axes} axes, expected at most {MAX_AXES}")
            shape = tuple(self._number("<Q") for _ in range(num_axes))[::-1]
            listed[name] = TensorPlace(shape, self._number("<I"), self._number("<Q"))
        alignment = keys.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError("general.alignment is no whole number above 0")
        first = -(-self._place // alignment) * alignment
        tensors = {
            name: TensorPlace(each.shape, each.type_number, first + each.start)
            for name, each in listed.items()
        }
        return Header(keys, tensors)

    def _take(self, num_bytes: int) -> bytes:
        start, self._place = self._place, self._place + num_bytes
        if self._place > self._end:
            raise ValueError("it ends within its header")
        return self._data[start : self._place]

    def _number(self, form: str) -> int:
        (number,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return int(number)

    def _text(self) -> str:
        return self._take(self._number("<Q")).decode()

    def _value(self, kind: int) -> Any:  # noqa: ANN401 - of a file
        if kind == TEXT:
            return self._text()
        if kind in SCALARS:
            return self._array(kind, 1)[0]
        if kind != ARRAY:
            raise ValueError(f"a value is of kind {kind}, which is not known")
        inner, count = self._number("<I"), self._number("<Q")
        if inner == TEXT:
            return [self._text() for _ in range(count)]
        if inner not in SCALARS:
            raise ValueError(f"an array has values of kind {inner}, which is not known")
        return self._array(inner, count)

    def _array(self, kind: int, count: int) -> list[Any]:
        dtype = np.dtype(SCALARS[kind])
        values: list[Any] = np.frombuffer(self._take(dtype.itemsize * count), dtype).tolist()
        return values
