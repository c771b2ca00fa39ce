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
import torch

from export.errors import ExportError

# Of the mean second moment, added to all: sample texts do not span all inputs. The next is taken
# where float32 cannot factor what the one before it gives.
DAMPINGS = 0.01, 0.1, 1.0
CHUNK = 128  # weights of a column whose earlier errors are multiplied together
MAX_TOGETHER = 6_144  # inputs: what a factor of them takes grows with the third power
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
        self._factors = [_factor(moments_KK) for moments_KK in moments]

    def rounded(self, weights_KN: np.ndarray) -> Rounded:
        """The weights of some columns."""
        rounded = [
            self._of_part(weights_KN[part], *factor)
            for part, factor in zip(self._parts, self._factors, strict=True)
        ]
        if len(rounded) == 1:
            return rounded[0]
        return Rounded(
            np.concatenate([each.steps_KN for each in rounded]),
            np.concatenate([each.scales_BN for each in rounded]),
        )

    def _of_part(
        self, weights_KN: np.ndarray, order_K: np.ndarray, factor_KK: np.ndarray
    ) -> Rounded:
        steps_KN: np.ndarray = np.empty(weights_KN.shape, np.int8)
        num_blocks, num_columns = -(-len(weights_KN) // self._block_size), weights_KN.shape[1]
        scales_BN: np.ndarray = np.empty((num_blocks, num_columns), np.float32)
        for first in range(0, num_columns, SLAB):
            slab = slice(first, first + SLAB)
            some_KN = np.ascontiguousarray(weights_KN[:, slab], np.float32)
            scales_BN[:, slab] = _searched_scales(some_KN, self._bits, self._block_size)
            scales_KN = _of_rows(scales_BN[:, slab], weights_KN, self._block_size)
            steps_KN[order_K, slab] = _compensated(
                some_KN[order_K], scales_KN[order_K], factor_KK, self._bits
            )
        return Rounded(steps_KN, scales_BN)


def _factor(moments_KK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of channels, and how much of each earlier error a later weight makes up for.

    With the moments in this order as U * U.T, U an upper triangle, the squared error of a product
    is a sum of one square for each channel, of its own error and those before it: row i of the
    result is column i of U over its last number. These are GPTQ's changes, without an inverse.
    """
    sizes_K = moments_KK.diagonal()
    order_K = np.argsort(-sizes_K, kind="stable")
    backwards_KK = torch.from_numpy(moments_KK[np.ix_(order_K[::-1], order_K[::-1])])
    mean = float(sizes_K.mean()) or 1.0
    added = 0.0
    for damping in DAMPINGS:
        backwards_KK.diagonal().add_(damping * mean - added)
        added = damping * mean
        lower_KK, first_failed = torch.linalg.cholesky_ex(backwards_KK)
        if not first_failed:
            break
    else:
        raise ExportError(
            "inputs of a product are not finite on the sample texts, which 4 bits are chosen by: "
            "take --precision int8-weights"
        )
    factor_KK: np.ndarray = np.ascontiguousarray(lower_KK.numpy().T[::-1, ::-1])
    factor_KK /= factor_KK.diagonal()[:, None].copy()
    return order_K, factor_KK


def _compensated(
    weights_KN: np.ndarray, scales_KN: np.ndarray, factor_KK: np.ndarray, bits: int
) -> np.ndarray:
    """The steps of weights in the order of their factor."""
    steps_KN, errors_KN = np.empty(weights_KN.shape, np.int8), np.empty_like(weights_KN)
    bounds = [*range(0, len(weights_KN), CHUNK), len(weights_KN)]
    for start, end in pairwise(bounds):
        changed_CN = factor_KK[start:end, :start] @ errors_KN[:start]
        changed_CN += weights_KN[start:end]
        for row in range(start, end):
            changed_N = changed_CN[row - start]
            changed_N += factor_KK[row, start:row] @ errors_KN[start:row]
            steps_KN[row] = _steps(changed_N, scales_KN[row], bits)
            np.multiply(steps_KN[row], scales_KN[row], out=errors_KN[row])
            np.subtract(weights_KN[row], errors_KN[row], out=errors_KN[row])
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
    steps = values / scales
    np.rint(steps, out=steps).clip(-end, end - 1, out=steps)
    rounded: np.ndarray = steps.astype(np.int8)
    return rounded
