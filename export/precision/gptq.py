"""GPTQ: 4-bit weights, each rounded so that it makes up for the errors of those before it.

Rounded to the nearest step, the errors of a column of weights add up as they come. What matters is
the error of the product on the inputs that it meets, and those have correlated channels: the error
of one weight is mostly undone by a small change of those that are rounded after it. GPTQ (Frantar
et al. 2022, arXiv 2210.17323) computes these changes from the second moments of the inputs.
Channels with the largest inputs come first, when most weights are left to compensate.

Knows nothing of graphs.
"""
# ruff: noqa: N803, N806, N815 - suffixes are array layouts: K inputs, N outputs, B blocks

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

DAMPING = 0.01  # of the mean second moment, added to all: sample texts do not span all inputs
SMALL = 128  # rows of a triangle that is inverted as any other matrix is
CHUNK = 64  # weights of a column whose changes are applied together
MAX_TOGETHER = 6_144  # inputs: what an inverse of them takes grows with the third power
SLAB = 4_096  # columns at once: a chunk of them stays in a processor's cache
SHARES = np.linspace(0.7, 1.05, 15)  # of the step that holds a block's largest weight


@dataclass(frozen=True, slots=True)
class Rounded:
    """Weights as whole steps, and the size of a step for each block of a column."""

    steps_KN: np.ndarray  # int8
    scales_BN: np.ndarray  # float32


def round_nearest(weights_KN: np.ndarray, bits: int, block_size: int) -> Rounded:
    """Each to the nearest step of its block, whose largest weight is the end of the range."""
    scales_BN = _largest_scales(_in_blocks(weights_KN, block_size), bits)
    return Rounded(_steps(weights_KN, _of_rows(scales_BN, weights_KN, block_size), bits), scales_BN)


def parts_of(num_inputs: int, block_size: int) -> list[slice]:
    """Inputs whose weights make up for each other's errors."""
    num_parts = -(-num_inputs // MAX_TOGETHER)
    step = -(-num_inputs // num_parts // block_size) * block_size
    starts = range(0, num_inputs, step)
    return [slice(start, min(start + step, num_inputs)) for start in starts]


class Compensation:
    """Rounding for inputs with these second moments, the sum of x_i * x_j over samples.

    There are moments of each of `parts_of` the inputs.
    """

    def __init__(self, moments: Sequence[np.ndarray], bits: int, block_size: int) -> None:
        self._bits, self._block_size = bits, block_size
        self._parts = parts_of(sum(map(len, moments)), block_size)
        self._eliminations = [_elimination(moments_KK) for moments_KK in moments]

    def rounded(self, weights_KN: np.ndarray) -> Rounded:
        """The weights of some columns."""
        rounded = [
            self._of_part(weights_KN[part], *elimination)
            for part, elimination in zip(self._parts, self._eliminations, strict=True)
        ]
        if len(rounded) == 1:
            return rounded[0]
        return Rounded(
            np.concatenate([each.steps_KN for each in rounded]),
            np.concatenate([each.scales_BN for each in rounded]),
        )

    def _of_part(
        self, weights_KN: np.ndarray, order_K: np.ndarray, upper_KK: np.ndarray
    ) -> Rounded:
        steps_KN: np.ndarray = np.empty(weights_KN.shape, np.int8)
        num_blocks, num_columns = -(-len(weights_KN) // self._block_size), weights_KN.shape[1]
        scales_BN: np.ndarray = np.empty((num_blocks, num_columns), np.float32)
        for first in range(0, num_columns, SLAB):
            slab = slice(first, first + SLAB)
            scales_BN[:, slab] = _searched_scales(weights_KN[:, slab], self._bits, self._block_size)
            scales_KN = _of_rows(scales_BN[:, slab], weights_KN, self._block_size)
            steps_KN[order_K, slab] = _eliminated(
                weights_KN[order_K, slab], scales_KN[order_K], upper_KK, self._bits
            )
        return Rounded(steps_KN, scales_BN)


def _elimination(moments_KK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of channels, and the factor of the inverse moments in it: an upper triangle."""
    moments_KK = moments_KK.astype(np.float64)
    sizes_K = moments_KK.diagonal().copy()
    mean = sizes_K.mean() or 1.0
    moments_KK[np.diag_indices(len(sizes_K))] += DAMPING * mean
    order_K = np.argsort(-sizes_K, kind="stable")
    # The factor of the inverse is the inverse of a factor, from the last channel to the first.
    lower_KK = np.linalg.cholesky(moments_KK[np.ix_(order_K[::-1], order_K[::-1])])
    return order_K, _inverse(lower_KK[::-1, ::-1]).astype(np.float32)


def _inverse(upper_KK: np.ndarray) -> np.ndarray:
    """The inverse of an upper triangle, by products of its parts: a third of a general inverse."""
    half = len(upper_KK) // 2
    if half < SMALL:
        inverse_KK: np.ndarray = np.linalg.inv(upper_KK)
        return inverse_KK
    first_KK, second_KK = _inverse(upper_KK[:half, :half]), _inverse(upper_KK[half:, half:])
    inverse_KK = np.zeros_like(upper_KK)
    inverse_KK[:half, :half], inverse_KK[half:, half:] = first_KK, second_KK
    inverse_KK[:half, half:] = -first_KK @ upper_KK[:half, half:] @ second_KK
    return inverse_KK


def _eliminated(
    weights_KN: np.ndarray, scales_KN: np.ndarray, upper_KK: np.ndarray, bits: int
) -> np.ndarray:
    """The steps of weights in the order of elimination."""
    left_KN = weights_KN.astype(np.float32, copy=True)
    steps_KN = np.empty(weights_KN.shape, np.int8)
    bounds = [*range(0, len(left_KN), CHUNK), len(left_KN)]
    for start, end in pairwise(bounds):
        errors = np.empty((end - start, left_KN.shape[1]), np.float32)
        for row in range(start, end):
            steps_KN[row] = _steps(left_KN[row], scales_KN[row], bits)
            off_N = left_KN[row] - steps_KN[row] * scales_KN[row]
            errors[row - start] = off_N / upper_KK[row, row]
            left_KN[row + 1 : end] -= np.outer(upper_KK[row, row + 1 : end], errors[row - start])
        left_KN[end:] -= upper_KK[start:end, end:].T @ errors
    return steps_KN


def _searched_scales(weights_KN: np.ndarray, bits: int, block_size: int) -> np.ndarray:
    """[B, N]: of some steps up to the largest weight's, those with the least squared error."""
    blocks_BSN = _in_blocks(weights_KN, block_size)
    scales_BN: np.ndarray = np.stack([_searched_scale(block_SN, bits) for block_SN in blocks_BSN])
    return scales_BN


def _searched_scale(block_SN: np.ndarray, bits: int) -> np.ndarray:
    """[N], of one block, which a processor's cache holds."""
    largest_N: np.ndarray = _largest_scales(block_SN[None], bits)[0]
    least_N = np.full(largest_N.shape, np.inf, np.float32)
    scales_N: np.ndarray = largest_N.copy()
    off_SN, end = np.empty_like(block_SN), 2 ** (bits - 1)
    for share in SHARES:
        tried_N = largest_N * np.float32(share)
        np.divide(block_SN, tried_N, out=off_SN)
        np.rint(off_SN, out=off_SN).clip(-end, end - 1, out=off_SN)
        off_SN *= tried_N
        off_SN -= block_SN
        error_N = np.einsum("sn,sn->n", off_SN, off_SN)
        is_better_N = error_N < least_N
        least_N[is_better_N] = error_N[is_better_N]
        scales_N[is_better_N] = tried_N[is_better_N]
    return scales_N


def _in_blocks(weights_KN: np.ndarray, block_size: int) -> np.ndarray:
    """[B, S, N], the last block filled with zeros."""
    num_inputs, num_columns = weights_KN.shape
    num_blocks = -(-num_inputs // block_size)
    padding = num_blocks * block_size - num_inputs
    padded = np.pad(weights_KN, ((0, padding), (0, 0))) if padding else weights_KN
    blocks_BSN: np.ndarray = padded.reshape(num_blocks, block_size, num_columns)
    return blocks_BSN


def _largest_scales(blocks_BSN: np.ndarray, bits: int) -> np.ndarray:
    """[B, N]: a step of which the largest weight is the most negative number."""
    high_BN, low_BN = blocks_BSN.max(axis=1), blocks_BSN.min(axis=1)
    signed_BN = np.where(high_BN > -low_BN, high_BN, low_BN)
    scales_BN: np.ndarray = (signed_BN / -(2 ** (bits - 1))).astype(np.float32)
    scales_BN[scales_BN == 0] = 1.0
    return scales_BN


def _of_rows(scales_BN: np.ndarray, weights_KN: np.ndarray, block_size: int) -> np.ndarray:
    """[K, N]: the scale of each weight."""
    repeated: np.ndarray = np.repeat(scales_BN, block_size, axis=0)[: len(weights_KN)]
    return repeated


def _steps(values: np.ndarray, scales: np.ndarray, bits: int) -> np.ndarray:
    end = 2 ** (bits - 1)
    steps: np.ndarray = np.rint(values / scales).clip(-end, end - 1).astype(np.int8)
    return steps
