"""GGUF files: their keys, and their tensors as arrays in float32.

The package gguf of llama.cpp's authors reads the format and knows all types of its blocks; it maps
the file, so that a tensor takes memory when it is read and not before. Knows nothing about
networks.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import CheckpointError, reason

SUFFIX = ".gguf"
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
    def _readers(self) -> list[Any]:
        try:
            from gguf import GGUFReader
        except ModuleNotFoundError as error:
            raise CheckpointError(
                f"{self.path} is a file of GGUF, which the package gguf reads: "
                "pip install 'attendant[train]'"
            ) from error
        try:
            return [GGUFReader(path) for path in self.paths]
        except (OSError, ValueError, KeyError, IndexError, OverflowError, TypeError) as error:
            raise CheckpointError(
                f"{self.path} is not a readable file of GGUF: its header is cut off or damaged; "
                "copy it again"
            ) from error

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
    def keys(self) -> Mapping[str, Any]:
        """Keys and values of the file; an array of texts or numbers is a list."""
        return {name: field.contents() for name, field in self._readers[0].fields.items()}

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of tensors by name, with the outermost size first."""
        return {name: tuple(int(n) for n in reversed(t.shape)) for name, t in self._tensors.items()}

    @cached_property
    def types(self) -> Mapping[str, str]:
        """Types of tensors by name, as llama.cpp spells them: F16, Q4_K."""
        return {name: str(tensor.tensor_type.name) for name, tensor in self._tensors.items()}

    @cached_property
    def _tensors(self) -> dict[str, Any]:
        return {tensor.name: tensor for reader in self._readers for tensor in reader.tensors}

    def read(self, name: str) -> NDArray[np.float32]:
        """One tensor in float32, whatever the type of its blocks."""
        from gguf.quants import dequantize

        tensor = self._tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise CheckpointError(
                f"{self.path}: {name} is of type {self.types[name]}, which cannot be read: "
                f"{reason(error)}"
            ) from error
        # A copy, as the data of floats are still those of the mapped file.
        return np.array(values, np.float32).reshape(self.shapes[name])
