"""GGUF files: their keys, and their tensors as arrays in float32.

The package gguf of llama.cpp's authors knows all types of blocks. Files are mapped, so that a
tensor takes memory when it is read and not before. Knows nothing about networks.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.checkpoints.gguf.header import Header, TensorPlace, read_header
from models.errors import CheckpointError, reason

SUFFIX = ".gguf"
# Types of blocks of whole numbers with scales, which `blocks.py` reads as such.
KEPT_TYPES = (
    *("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "MXFP4"),
)
PART = re.compile(r"(?P<stem>.+)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf", re.ASCII)


def gguf_in(folder: Path) -> Path:
    """The one GGUF file of a folder, or the first of its parts.

    Raises CheckpointError, which lists them, for a folder with several.
    """
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    firsts = [path for path in paths if not _is_later_part(path)]
    models = [path for path in firsts if not path.name.startswith("mmproj")]
    if len(models) == 1:
        return models[0]
    names = ", ".join(path.name for path in models[:20]) or "none"
    raise CheckpointError(
        f"{folder} has {len(models)} models of GGUF ({names}), expected 1: give the path of a file"
    )


def _is_later_part(path: Path) -> bool:
    match = PART.fullmatch(path.name)
    return match is not None and int(match["part"]) != 1


@dataclass(frozen=True)
class GgufFile:
    """A file, and those that follow it where it is the first of several parts."""

    path: Path

    @cached_property
    def paths(self) -> list[Path]:
        match = PART.fullmatch(self.path.name)
        if match is None:
            return [self.path]
        count = int(match["parts"])
        paths = [
            self.path.with_name(f"{match['stem']}-{part + 1:05}-of-{match['parts']}{SUFFIX}")
            for part in range(count)
        ]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            raise CheckpointError(f"{missing[0]} is missing beside {self.path}: copy all {count}")
        return paths

    @cached_property
    def _headers(self) -> dict[Path, Header]:
        try:
            return {path: read_header(path) for path in self.paths}
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.path} is not a readable file of GGUF: {reason(error)}; copy it again"
            ) from error

    @property
    def keys(self) -> Mapping[str, Any]:
        """Keys and values of the file; an array of texts or numbers is a list."""
        return self._headers[self.path].keys

    @cached_property
    def _tensors(self) -> dict[str, tuple[Path, TensorPlace]]:
        return {
            name: (path, place)
            for path, header in self._headers.items()
            for name, place in header.tensors.items()
        }

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of tensors by name, with the outermost size first."""
        return {name: place.shape for name, (_, place) in self._tensors.items()}

    def type_of(self, name: str) -> str:
        """The type of a tensor as llama.cpp spells it, F16 or Q4_K, or its number."""
        number = self._tensors[name][1].type_number
        known = {each.value: each.name for each in _library().GGMLQuantizationType}
        return str(known.get(number, number))

    def read(self, name: str) -> NDArray[np.float32]:
        """One tensor in float32, whatever the type of its blocks. Raises CheckpointError."""
        with self._reading(name):
            values = _library().quants.dequantize(*self.blocks(name))
        # A copy, as numbers that are stored as floats are still those of the mapped file.
        return np.array(values, np.float32).reshape(self.shapes[name])

    def blocks(self, name: str) -> tuple[NDArray[np.uint8], Any]:
        """Bytes of a tensor [rows, bytes of a row], and the type of its blocks."""
        library, (path, place) = _library(), self._tensors[name]
        kind = library.GGMLQuantizationType(place.type_number)
        in_block, block_bytes = library.GGML_QUANT_SIZES[kind]
        *rows, columns = place.shape
        if columns % in_block:
            raise ValueError(f"{columns} numbers in blocks of {in_block}")
        shape = (prod(rows), columns // in_block * block_bytes)
        return np.memmap(path, np.uint8, "r", place.start, shape), kind

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (NotImplementedError, OSError, ValueError, OverflowError) as error:
            raise CheckpointError(
                f"{self.path}: {name} is of type {self.type_of(name)} and shape "
                f"{list(self.shapes[name])}, which cannot be read: {reason(error)}"
            ) from error


def _library() -> Any:  # noqa: ANN401 - the module, of an extra
    try:
        import gguf
        import gguf.quants
    except ModuleNotFoundError as error:
        raise CheckpointError(
            "the blocks of GGUF are read by the package gguf: pip install 'attendant[train]'"
        ) from error
    return gguf
