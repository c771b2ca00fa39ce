"""Rounded weights as ONNX Runtime's products of few bits hold them, with no further rounding.

    blocks  MatMulNBits: (code - zero) * scale for each block, of 4 or 8 bits, and `offsets` times
            the sum of a group's activations where zeros are no whole numbers of that range
    table   MatMulBnb4: a place in a table of 16 numbers, times the block's largest value
    rows    int8 with a scale for each output; activations are int8 with a scale for each token

MatMulNBits has floating point zero points too, and sums with 8 bits and exact activations, but
turns the whole matrix into floats for each run then: 15 to 40 times the time for one row. It has 2
bits too, which take 1.4 to 2.3 times as long as 4 do: 2 and 3 bits are kept as 4, and 5 and 6 as 8.
Groups of more than 32 inputs are blocks of 32 with the same scale: with larger ones a row would
depend on its neighbours. Inputs whose groups are not in their order are sorted: the operator's own
`g_idx` ignores zero points.
"""
# ruff: noqa: N803, N806, N815 - suffixes are array layouts: N outputs, K inputs, B blocks, G groups

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from models.checkpoints.rounded.stored import Stored

Array = NDArray[Any]
KeptAs = Literal["blocks", "table", "rows"]
BLOCK_SIZES = (32, 16)
# The tables of MatMulBnb4, by its quant_type: fp4 and nf4 of bitsandbytes.
TABLES: tuple[tuple[float, ...], ...] = (
    (
        *(0.0, 0.00520833, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25),
        *(-0.0, -0.00520833, -0.66666667, -1.0, -0.33333333, -0.5, -0.16666667, -0.25),
    ),
    (
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ),
)


@dataclass(frozen=True, slots=True)
class Kept:
    """One weight [outputs, inputs] with its own numbers."""

    title: str  # of what has rounded it
    kept_as: KeptAs
    shape: tuple[int, int]
    bits: int  # of a code here; 4 of a table
    block_size: int  # inputs that share a scale; 0 of rows
    codes: (
        Array  # uint8 [N, B, bytes of a block]; of a table uint8 [N * K / 2]; of rows int8 [N, K]
    )
    scales: Array  # float32 [N, B]; of rows [N]
    zeros_NB: Array | None = None  # uint8; None: the middle of the range
    offsets_NG: Array | None = None  # float32
    group_size: int = 0  # inputs that share an offset
    order_K: Array | None = None  # int64: the input that each place takes
    quant_type: int = 0  # of a table: its place in `TABLES`
    first: bytes = b""  # digest of the first row as floats
    digest: bytes = b""  # of all rows


def digest_of(floats: Array) -> bytes:
    """Digest of the bytes of a row, or of rows, of float32."""
    return hashlib.blake2b(np.ascontiguousarray(floats).data, digest_size=16).digest()


def kept_of(stored: Stored, title: str) -> Kept | None:
    """The weight with its own numbers; None for one that none of the products can hold.

    `title` says what has rounded it.
    """
    floats_NK = stored.floats().numpy()
    num_outputs, num_inputs = floats_NK.shape
    common: dict[str, Any] = {
        "title": title,
        "shape": (num_outputs, num_inputs),
        "first": digest_of(floats_NK[0]),
        "digest": digest_of(floats_NK),
    }
    if stored.values is not None:
        return _in_table(stored, common)
    if stored.rounds_rows and _has_scales_of_rows(stored):
        scales = stored.by_groups(stored.scales)
        assert scales is not None
        codes_NK = stored.codes.numpy().astype(np.int8)
        scales_N = scales.numpy().astype(np.float32).ravel() * np.float32(stored.factor)
        return Kept(kept_as="rows", bits=8, block_size=0, codes=codes_NK, scales=scales_N, **common)
    return _in_blocks(stored, common)


def _has_scales_of_rows(stored: Stored) -> bool:
    has_zeros = stored.zeros is not None and bool((stored.zeros != 0).any())
    scales = stored.by_groups(stored.scales)
    return not has_zeros and stored.biases is None and scales is not None and scales.shape[1] == 1


def _in_table(stored: Stored, common: dict[str, Any]) -> Kept | None:
    assert stored.values is not None
    table = stored.values.numpy().ravel()
    same = [np.allclose(table, values, rtol=0, atol=1e-7) for values in TABLES]
    scales = stored.scales.numpy().astype(np.float32) * np.float32(stored.factor)
    num_inputs = stored.codes.shape[1]
    size = num_inputs // scales.shape[1]
    if not any(same) or size < BLOCK_SIZES[-1] or size & (size - 1):
        return None
    codes = stored.codes.numpy().astype(np.uint8).ravel()
    return Kept(
        kept_as="table",
        bits=4,
        block_size=size,
        codes=codes[0::2] << 4 | codes[1::2],
        scales=scales,
        quant_type=same.index(True),
        **common,
    )


def _in_blocks(stored: Stored, common: dict[str, Any]) -> Kept | None:
    codes_NK = stored.codes.numpy().astype(np.int16)
    num_inputs = codes_NK.shape[1]
    parts = (stored.scales, stored.zeros, stored.biases)
    scales_NG, zeros_NG, biases_NG = (_numbers(stored.by_groups(part)) for part in parts)
    assert scales_NG is not None
    num_groups = max(part.shape[1] for part in (scales_NG, zeros_NG, biases_NG) if part is not None)
    group_size, order_K = _grouped(stored, num_inputs, num_groups)
    size = next((each for each in BLOCK_SIZES if group_size % each == 0), 0)
    size = BLOCK_SIZES[0] if num_groups == 1 else size
    if not size:
        return None
    if order_K is not None:
        codes_NK = codes_NK[:, order_K]
    scales_NG = scales_NG * np.float32(stored.factor / stored.halved)
    scales_NG = np.broadcast_to(scales_NG, (len(codes_NK), num_groups))
    biases_NG = None if biases_NG is None else biases_NG * np.float32(stored.factor)
    bits, base, zeros, offsets = _centred(stored, codes_NK, scales_NG, zeros_NG, biases_NG)
    if not bits or (offsets is not None and num_inputs % group_size):
        return None
    group_B = np.arange(-(-num_inputs // size)) * size // group_size
    zeros_NB = None if zeros is None else np.ascontiguousarray(zeros[:, group_B])
    return Kept(
        kept_as="blocks",
        bits=bits,
        block_size=size,
        codes=_packed((codes_NK - base).astype(np.uint8), bits, size),
        scales=np.ascontiguousarray(scales_NG[:, group_B]),
        zeros_NB=zeros_NB,
        offsets_NG=offsets,
        group_size=group_size,
        order_K=order_K,
        **common,
    )


def _numbers(part: Tensor | None) -> NDArray[np.float32] | None:
    return None if part is None else part.numpy().astype(np.float32)


def _grouped(stored: Stored, num_inputs: int, num_groups: int) -> tuple[int, Array | None]:
    """The size of groups, 0 where they differ, and the order that puts each beside its like."""
    if stored.groups is None:
        by_block = stored.block[1] if stored.block and num_groups > 1 else 0
        return by_block or -(-num_inputs // num_groups), None
    groups_K = stored.groups.numpy()
    order_K = np.argsort(groups_K, kind="stable")
    group_size = int((groups_K == groups_K[order_K[0]]).sum())
    if not np.array_equal(groups_K[order_K], np.arange(num_inputs) // group_size):
        return 0, None
    is_sorted = np.array_equal(order_K, np.arange(num_inputs))
    return group_size, None if is_sorted else order_K.astype(np.int64)


def _centred(
    stored: Stored,
    codes_NK: Array,
    scales_NG: Array,
    zeros_NG: Array | None,
    biases_NG: Array | None,
) -> tuple[int, int, Array | None, Array | None]:
    """Bits, the number that code 0 stands for, zero points, and offsets of groups.

    Zero points are None where all are the middle of the range. 0 bits: there is no such range.
    """
    least, most = int(codes_NK.min()), int(codes_NK.max())
    zeros = np.zeros((1, 1), np.float32) if zeros_NG is None else zeros_NG
    if biases_NG is None and bool((zeros == np.rint(zeros)).all()):
        low, high = int(zeros.min()), int(zeros.max())
        lowest, range_bits = min(least, low), (max(most, high) - min(least, low)).bit_length()
        bits = _bits_around(low, least, most)
        if bits and low == high and (bits == 4 or range_bits > 4):
            return bits, low - (1 << bits - 1), None, None
        if range_bits <= 8:
            shifted = np.broadcast_to(zeros - lowest, scales_NG.shape).astype(np.uint8)
            return 4 if range_bits <= 4 else 8, lowest, shifted, None
    middle = 0 if least < 0 else 1 << stored.bits - 1
    bits = _bits_around(middle, least, most)
    exact = scales_NG.astype(np.float64) * (middle - zeros.astype(np.float64))
    exact = exact if biases_NG is None else exact + biases_NG
    offsets = np.broadcast_to(exact.astype(np.float32), scales_NG.shape)
    return bits, middle - (1 << bits >> 1), None, offsets


def _bits_around(middle: int, least: int, most: int) -> int:
    """Bits of a range around its middle that has both numbers; 0 where it takes more than 8."""
    halves = {bits: 1 << bits - 1 for bits in (4, 8)}
    fits = (b for b, half in halves.items() if -half <= least - middle and most - middle < half)
    return next(fits, 0)


def _packed(codes_NK: Array, bits: int, block_size: int) -> Array:
    """uint8 [N, B, bytes of a block]; of two codes of 4 bits the first is the lower half."""
    num_outputs, num_inputs = codes_NK.shape
    num_blocks = -(-num_inputs // block_size)
    padding = num_blocks * block_size - num_inputs
    padded = np.pad(codes_NK, ((0, 0), (0, padding)), constant_values=1 << bits - 1)
    if bits == 4:
        padded = padded[:, 0::2] | padded[:, 1::2] << 4
    return np.ascontiguousarray(padded.reshape(num_outputs, num_blocks, -1))
