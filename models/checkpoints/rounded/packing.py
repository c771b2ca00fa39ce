"""Whole numbers of a few bits out of the words that they are packed into.

Each function takes tensors as files store them and raises ValueError where shapes contradict one
another. Knows nothing about names of weights or about the programs that wrote them.
"""

import torch
from torch import Tensor

WORD_BITS = 32
# Numbers of E2M1, by their code of four bits (OCP Microscaling Formats 1.0, 5.3.3).
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E2M1 = (*_MAGNITUDES, *(-value for value in _MAGNITUDES))


def unpacked(words: Tensor, bits: int) -> Tensor:
    """Numbers of `bits` bits along the last axis of 32-bit words, the lowest bits first.

    Numbers follow one another without gaps, so that those of 3, 5 and 6 bits may span two words.
    """
    num_words = words.shape[-1]
    if not 1 <= bits <= 8:
        raise ValueError(f"numbers have {bits} bits, expected 1 to 8")
    if words.element_size() * 8 != WORD_BITS or words.is_floating_point():
        raise ValueError(f"words are of type {words.dtype}, expected whole numbers of 32 bits")
    signed = words.view(torch.int32)
    mask, columns = (1 << bits) - 1, []
    for index in range(num_words * WORD_BITS // bits if bits & (bits - 1) else WORD_BITS // bits):
        word, shift = divmod(index * bits, WORD_BITS)
        if bits & (bits - 1) == 0:
            columns.append((signed >> shift) & mask)
            continue
        number = (signed[..., word] >> shift) & (mask if shift + bits <= WORD_BITS else _low(shift))
        if shift + bits > WORD_BITS:
            number = number | (signed[..., word + 1] << (WORD_BITS - shift)) & mask
        columns.append(number)
    if bits & (bits - 1):
        return torch.stack(columns, dim=-1)
    return torch.stack(columns, dim=-1).flatten(-2)


def _low(shift: int) -> int:
    """Mask of the bits that are left of a word behind `shift`."""
    return (1 << (WORD_BITS - shift)) - 1


def halves(packed: Tensor, *, is_low_first: bool) -> Tensor:
    """Numbers of four bits along the last axis of bytes."""
    low, high = packed & 15, packed >> 4
    pair = (low, high) if is_low_first else (high, low)
    return torch.stack(pair, dim=-1).flatten(-2)


def e2m1(codes: Tensor) -> Tensor:
    """Floating point numbers of four bits by their codes."""
    return torch.tensor(E2M1, device=codes.device)[codes.long()]


def power_of_two(exponents: Tensor) -> Tensor:
    """Scales of E8M0: whole powers of two, with 127 added to the exponent."""
    if exponents.is_floating_point():  # torch knows the type, and has converted it
        return exponents
    return torch.exp2(exponents.float() - 127)


def spread(scales: Tensor, shape: tuple[int, int], block: tuple[int, int] | None = None) -> Tensor:
    """Scales of blocks of a matrix, one for each of its numbers or of its rows.

    `block` has the rows and columns of a block; without it they are what divides the matrix.
    """
    if scales.numel() == 1:
        return scales.reshape(1, 1)
    if scales.ndim == 1:
        scales = scales[:, None]
    sizes = []
    for axis in (0, 1):
        count, size = scales.shape[axis], shape[axis]
        each = block[axis] if block and count > 1 else -(-size // count)
        if -(-size // each) != count or (block is None and count > 1 and size % count):
            raise ValueError(f"{count} scales cannot be those of {size} numbers")
        sizes.append(each)
    if scales.shape[1] == 1:
        return scales.repeat_interleave(sizes[0], 0)[: shape[0]]
    rows = scales.repeat_interleave(sizes[0], 0)[: shape[0]]
    return rows.repeat_interleave(sizes[1], 1)[:, : shape[1]]
