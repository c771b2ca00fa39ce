"""A safetensors file, written one tensor at a time: its header first, as all lengths are known.

A lazy tensor is written in the type that its file has it in, where no number was changed since.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.lazy import LazyTensor, pieces

# As the format spells the types of networks' weights.
NAMES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.bool: "BOOL",
}
ALIGNMENT = 8  # of the first tensor


def num_bytes(tensors: Mapping[str, Tensor]) -> int:
    """The size of the tensors in a file."""
    return sum(tensor.numel() * _dtype(tensor).itemsize for tensor in tensors.values())


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> str:
    """Write the file; returns its SHA-256. Equal tensors give equal bytes."""
    # Larger numbers first, so that each is at a multiple of its size.
    order = sorted(tensors, key=lambda name: (-_dtype(tensors[name]).itemsize, name))
    header, end = {}, 0
    for name in order:
        start, tensor = end, tensors[name]
        end += tensor.numel() * _dtype(tensor).itemsize
        shape = list(tensor.shape)
        header[name] = {
            "dtype": NAMES[_dtype(tensor)],
            "shape": shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for content in (len(text).to_bytes(8, "little"), text):
            file.write(content)
            digest.update(content)
        for name in order:
            for piece in pieces(tensors[name]):
                numbers = piece.to(_dtype(tensors[name])).contiguous()
                view = numbers.flatten().view(torch.uint8).numpy().data
                file.write(view)
                digest.update(view)
    return digest.hexdigest()


def _dtype(tensor: Tensor) -> torch.dtype:
    dtype = tensor.stored_dtype if isinstance(tensor, LazyTensor) else tensor.dtype
    return dtype if dtype in NAMES else tensor.dtype
