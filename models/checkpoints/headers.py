"""Files of weights without their values: names, types and shapes of tensors, and lists of parts.

Knows nothing about networks, and imports no torch: a file of 16 GB is looked at in milliseconds.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from models.checkpoints.file_names import PICKLED_FILE
from models.errors import CheckpointError, reason, shown
from models.json_files import fields_of, read_object

PART = re.compile(r"[\w-][\w.-]{0,200}\.safetensors", re.ASCII)
PICKLED_PART = re.compile(r"[\w-][\w.-]{0,200}\.bin", re.ASCII)
MAX_HEADER_BYTES = 100_000_000  # as the format's own library has it


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """Type and shape of a tensor, as its file states them."""

    dtype: str  # as the format spells it: F32, BF16, I64
    shape: tuple[int, ...]

    @property
    def num_values(self) -> int:
        return prod(self.shape)


def read_headers(path: Path) -> Mapping[str, TensorHeader]:
    """The tensors of a safetensors file by name. Raises `CheckpointError` for any other file."""
    try:
        with path.open("rb") as file:
            num_bytes = int.from_bytes(file.read(8), "little")
            if num_bytes > min(MAX_HEADER_BYTES, path.stat().st_size):
                raise ValueError(f"its header would have {num_bytes} bytes")  # noqa: TRY301
            stated = json.loads(file.read(num_bytes))
        _check_length(path, 8 + num_bytes, stated)
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not a readable safetensors file: {reason(error)}"
        ) from error
    with fields_of(path, stated) as tensors:
        return {
            str(name): _header(tensor) for name, tensor in tensors.items() if name != "__metadata__"
        }


def _check_length(path: Path, start: int, stated: object) -> None:
    """Raise `ValueError` for a file that ends before its last tensor, as a broken download does."""
    tensors = stated.values() if isinstance(stated, dict) else ()
    ends = (each["data_offsets"][1] for each in tensors if "data_offsets" in each)
    needed, there = start + max(ends, default=0), path.stat().st_size
    if there < needed:
        raise ValueError(f"it has {there:,} of its {needed:,} bytes; fetch it again")


def _header(stated: Mapping[str, Any]) -> TensorHeader:
    return TensorHeader(str(stated["dtype"]), tuple(map(int, stated["shape"])))


def parts_of(index: Path) -> list[str]:
    """The names of the files that an index lists, which are beside it."""
    form = PICKLED_PART if index.name.startswith(PICKLED_FILE) else PART
    with fields_of(index, read_object(index)) as values:
        parts = sorted({str(part) for part in values["weight_map"].values()})
    for part in parts:
        if not form.fullmatch(part):
            kind = ".bin" if form is PICKLED_PART else ".safetensors"
            raise CheckpointError(
                f"{index}: {shown(part)} is not the name of a {kind} file beside it"
            )
    return parts
