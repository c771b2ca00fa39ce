"""Whole numbers of a few bits out of the words that they are packed into.

Each function takes tensors as files store them and raises ValueError where shapes contradict one
another. Knows nothing about names of weights or about the programs that wrote them.
"""

import torch
from torch import Tensor

WORD_BITS = 32
# Numbers of E2M1, doubled, by their code of four bits (OCP Microscaling Formats 1.0, 5.3.3).
_MAGNITUDES = (0, 1, 2, 3, 4, 6, 8, 12)
DOUBLED_E2M1 = (*_MAGNITUDES, *(-value for value in _MAGNITUDES))


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
    starts = torch.arange(num_words * WORD_BITS // bits, device=words.device) * bits
    word, shift = starts // WORD_BITS, starts % WORD_BITS
    following = (word + 1).clamp(max=num_words - 1)
    low = (signed[..., word] >> shift.int()) & ((1 << (WORD_BITS - shift)) - 1).int()
    high = signed[..., following] << ((WORD_BITS - shift) % WORD_BITS).int()
    spans_two = shift + bits > WORD_BITS
    return (low | torch.where(spans_two, high, 0)) & ((1 << bits) - 1)


def halves(packed: Tensor, *, is_low_first: bool) -> Tensor:
    """Numbers of four bits along the last axis of bytes."""
    low, high = packed & 15, packed >> 4
    pair = (low, high) if is_low_first else (high, low)
    return torch.stack(pair, dim=-1).flatten(-2)


def doubled_e2m1(codes: Tensor) -> Tensor:
    """Twice the floating point numbers of four bits, which is whole, by their codes."""
    return torch.tensor(DOUBLED_E2M1, device=codes.device)[codes.long()]


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
