"""Blocks of GGUF as whole numbers with scales.

The package gguf makes floats of blocks. The whole numbers are the floats of the same blocks with
scales of 1; the scales are those of blocks whose whole numbers are 1; what is added to a group is
what blocks of zeros give. So no layout of bits is written down here, but for the bytes that mean 1
and 0. Their products are gguf's own floats to the last bit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import gguf
import numpy as np
import torch
from gguf import quants
from numpy.typing import NDArray

from models.checkpoints.gguf.files import GgufFile
from models.checkpoints.gguf.networks import names_of, rows_in_halves
from models.checkpoints.rounded.kept import Kept, kept_of
from models.checkpoints.rounded.stored import Stored

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
ONE = (0x00, 0x3C)  # in float16
NONE = (0x00, 0x00)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Parts of a type of block, by the place of their first byte, and what they are replaced by."""

    bits: int
    group_size: int  # numbers that share a scale
    scales: Mapping[int, tuple[int, ...]]  # bytes of scales of 1, and of nothing to be added
    ones: Mapping[int, tuple[int, ...]]  # bytes of numbers of 1
    added: Mapping[int, tuple[int, ...]] | None = None  # bytes that leave nothing to be added
    zeros: Mapping[int, tuple[int, ...]] | None = None  # bytes of numbers of 0


_K_SCALES = (*(1,) * 4, *(0,) * 4, *(1,) * 4)  # eight scales of 1 and eight minima of 0, of 6 bits
BLOCKS: Mapping[str, Blocks] = {
    "Q8_0": Blocks(8, 32, {0: ONE}, {2: (1,) * 32}),
    "Q4_0": Blocks(4, 32, {0: ONE}, {2: (0x99,) * 16}),
    "Q4_1": Blocks(4, 32, {0: ONE}, {4: (0x11,) * 16}, {2: NONE}, {4: (0,) * 16}),
    "Q5_0": Blocks(5, 32, {0: ONE}, {2: (0xFF,) * 4 + (0x11,) * 16}),
    "Q5_1": Blocks(5, 32, {0: ONE}, {4: (0,) * 4 + (0x11,) * 16}, {2: NONE}, {4: (0,) * 20}),
    "Q2_K": Blocks(2, 16, {0: (1,) * 16, 80: ONE}, {16: (0x55,) * 64}, {82: NONE}, {16: (0,) * 64}),
    "Q3_K": Blocks(
        3,
        16,
        {96: (0x11,) * 8 + (0xAA,) * 4, 108: ONE},
        {0: (0xFF,) * 32 + (0x55,) * 64},
    ),
    "Q4_K": Blocks(4, 32, {0: ONE, 4: _K_SCALES}, {16: (0x11,) * 128}, {2: NONE}, {16: (0,) * 128}),
    "Q5_K": Blocks(
        5,
        32,
        {0: ONE, 4: _K_SCALES},
        {16: (0,) * 32 + (0x11,) * 128},
        {2: NONE},
        {16: (0,) * 160},
    ),
    "Q6_K": Blocks(6, 16, {192: (1,) * 16, 208: ONE}, {0: (0x11,) * 128 + (0xAA,) * 64}),
    "MXFP4": Blocks(5, 32, {0: (128,)}, {1: (0x11,) * 16}),
}
Dequantize = Callable[[Bytes], Floats]


def stored_blocks(
    kind: str, blocks: Bytes, block_bytes: int, dequantize: Dequantize
) -> Stored | None:
    """A matrix of blocks [rows, bytes]; None for a type that has no whole numbers.

    `dequantize` is gguf's function for the type.
    """
    layout = BLOCKS.get(kind)
    if layout is None or blocks.ndim != 2:
        return None

    def floats(*changes: Mapping[int, tuple[int, ...]] | None) -> Floats:
        changed = blocks.reshape(-1, block_bytes).copy()
        for change in changes:
            for place, content in (change or {}).items():
                changed[:, place : place + len(content)] = content
        return dequantize(changed.reshape(blocks.shape))

    def of_groups(*changes: Mapping[int, tuple[int, ...]] | None) -> torch.Tensor:
        return torch.from_numpy(floats(*changes)[:, :: layout.group_size].copy())

    return Stored(
        torch.from_numpy(floats(layout.scales, layout.added).astype(np.int8)),
        layout.bits,
        of_groups(layout.ones, layout.added),
        biases=of_groups(layout.zeros) if layout.zeros else None,
    )


def kept_in(file: GgufFile, factor: Callable[[str], float]) -> Iterator[Kept]:
    """Matrices of the file with their own numbers, rows in the order of transformers' networks.

    Each is multiplied by its factor, by its name in these networks.
    """
    for stored_name, name in names_of(file).items():
        if len(file.shapes[stored_name]) != 2:
            continue
        blocks, kind = file.blocks(stored_name)

        def dequantize(each: Bytes, kind: gguf.GGMLQuantizationType = kind) -> Floats:
            return quants.dequantize(each, kind)

        stored = stored_blocks(kind.name, blocks, gguf.GGML_QUANT_SIZES[kind][1], dequantize)
        if stored is None:
            continue
        order = rows_in_halves(file, stored_name)
        stored = stored if order is None else stored.rows(torch.from_numpy(order))
        kept = kept_of(replace(stored, factor=factor(name)), f"GGUF {kind.name}")
        if kept is not None:
            yield kept
