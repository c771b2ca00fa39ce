"""Compensated rounding: a smaller error of products on inputs like those it was made for."""
# ruff: noqa: N803, N806 - suffixes are array layouts: R rows, K inputs, N outputs, B blocks

import numpy as np
import pytest

from export.errors import ExportError
from export.precision.gptq import DAMPINGS, Compensation, Rounded, parts_of, round_nearest

BITS, BLOCK_SIZE = 4, 128
GENERATOR = np.random.default_rng(0)
K, N, RANK = 300, 40, 60  # two blocks and a part of one
WEIGHTS_KN = GENERATOR.normal(size=(K, N)).astype(np.float32)


def inputs(num_rows: int) -> np.ndarray:
    """Rows whose channels are correlated, as those of a network are, and of unlike size."""
    mixing_KK = np.random.default_rng(1).normal(size=(RANK, K))
    sizes_K = np.exp(np.random.default_rng(2).normal(size=K))
    generator = np.random.default_rng(num_rows)
    rows = generator.normal(size=(num_rows, RANK)) @ mixing_KK / RANK**0.5
    rows += 0.3 * generator.normal(size=rows.shape)
    return np.asarray(rows * sizes_K, np.float32)


def moments(rows_RK: np.ndarray) -> np.ndarray:
    return np.asarray(rows_RK.T @ rows_RK)


def values(rounded: Rounded) -> np.ndarray:
    """The weights that are computed with."""
    scales_KN = np.repeat(rounded.scales_BN, BLOCK_SIZE, axis=0)[:K]
    return np.asarray(rounded.steps_KN * scales_KN)


def error(rounded: Rounded, rows_RK: np.ndarray) -> float:
    exact_RN = rows_RK @ WEIGHTS_KN
    return float(np.square(rows_RK @ values(rounded) - exact_RN).sum() / np.square(exact_RN).sum())


def test_error_on_other_inputs_is_less_than_half_of_the_nearest_step_s() -> None:
    """Made for 2,000 rows, measured on 500 others of their kind."""
    compensated = Compensation([moments(inputs(2_000))], BITS, BLOCK_SIZE).rounded(WEIGHTS_KN)
    nearest = round_nearest(WEIGHTS_KN, BITS, BLOCK_SIZE)
    others = inputs(500)
    assert error(compensated, others) < 0.5 * error(nearest, others)


def test_steps_are_those_of_gptq_s_changes_by_the_inverse_moments() -> None:
    """Weight by weight in float64, by the inverse of what is left, as the paper has it."""
    moments_KK = moments(inputs(2_000)).astype(np.float64)
    rounded = Compensation([moments_KK.astype(np.float32)], BITS, BLOCK_SIZE).rounded(WEIGHTS_KN)
    scales_KN = np.repeat(rounded.scales_BN, BLOCK_SIZE, axis=0)[:K]
    order_K = np.argsort(-moments_KK.diagonal(), kind="stable")
    damped_KK = moments_KK + DAMPINGS[0] * moments_KK.diagonal().mean() * np.eye(K)
    left_KK = np.linalg.inv(damped_KK[np.ix_(order_K, order_K)])
    weights_KN, steps_KN = WEIGHTS_KN[order_K].astype(np.float64), np.empty((K, N))
    for row, scales_N in enumerate(scales_KN[order_K]):
        steps_KN[row] = np.rint(weights_KN[row] / scales_N).clip(-8, 7)
        off_N = (weights_KN[row] - steps_KN[row] * scales_N) / left_KK[row, row]
        weights_KN[row:] -= np.outer(left_KK[row:, row], off_N)
        left_KK -= np.outer(left_KK[:, row], left_KK[row]) / left_KK[row, row]
    assert (rounded.steps_KN[order_K] == steps_KN).mean() > 0.999


def test_moments_that_float32_cannot_factor_get_more_added() -> None:
    """One direction of them less than nothing, as the sum of many rounded products can have."""
    moments_KK = moments(inputs(2_000))
    mean, direction_K = moments_KK.diagonal().mean(), np.full(K, K**-0.5, np.float32)
    less = direction_K @ moments_KK @ direction_K + 2 * DAMPINGS[0] * mean
    moments_KK -= less * np.outer(direction_K, direction_K)
    rounded = Compensation([moments_KK], BITS, BLOCK_SIZE).rounded(WEIGHTS_KN)
    assert np.abs(values(rounded) - WEIGHTS_KN).max() < 4


def test_inputs_that_are_not_finite_are_refused_by_name() -> None:
    moments_KK = np.full((K, K), np.inf, np.float32)
    with pytest.raises(ExportError, match=r"not finite on the sample texts.*int8-weights"):
        Compensation([moments_KK], BITS, BLOCK_SIZE)


def test_steps_are_of_four_bits_and_each_block_has_a_scale() -> None:
    rounded = Compensation([moments(inputs(2_000))], BITS, BLOCK_SIZE).rounded(WEIGHTS_KN)
    assert rounded.steps_KN.shape == (K, N)
    assert rounded.steps_KN.min() >= -8
    assert rounded.steps_KN.max() <= 7
    assert rounded.scales_BN.shape == (3, N)
    assert rounded.scales_BN.dtype == np.float32


def test_columns_are_rounded_by_themselves() -> None:
    """A product of many columns is rounded in slabs."""
    of_inputs_KK = moments(inputs(2_000))
    together = Compensation([of_inputs_KK], BITS, BLOCK_SIZE).rounded(WEIGHTS_KN)
    apart = Compensation([of_inputs_KK], BITS, BLOCK_SIZE).rounded(WEIGHTS_KN[:, 10:20])
    np.testing.assert_array_equal(apart.steps_KN, together.steps_KN[:, 10:20])
    np.testing.assert_array_equal(apart.scales_BN, together.scales_BN[:, 10:20])


@pytest.mark.parametrize("num_rows", [0, 1])
def test_few_inputs_give_finite_weights(num_rows: int) -> None:
    """Channels that are 0 on the samples are rounded too."""
    rounded = Compensation([moments(inputs(num_rows))], BITS, BLOCK_SIZE).rounded(WEIGHTS_KN)
    assert np.abs(values(rounded) - WEIGHTS_KN).max() < 4


def test_weights_of_zero_stay_zero() -> None:
    rounded = Compensation([moments(inputs(100))], BITS, BLOCK_SIZE).rounded(0 * WEIGHTS_KN)
    assert not values(rounded).any()


def test_many_inputs_make_up_for_each_other_within_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whole blocks, with moments of a part alone: each is rounded as if it were all."""
    rows_RK = inputs(500)
    monkeypatch.setattr("export.precision.gptq.MAX_TOGETHER", 200)
    parts = parts_of(K, BLOCK_SIZE)
    assert parts == [slice(0, 256), slice(256, K)]
    of_parts = [moments(rows_RK[:, part]) for part in parts]
    together = Compensation(of_parts, BITS, BLOCK_SIZE).rounded(WEIGHTS_KN)
    monkeypatch.undo()
    for part, moments_KK in zip(parts, of_parts, strict=True):
        alone = Compensation([moments_KK], BITS, BLOCK_SIZE).rounded(WEIGHTS_KN[part])
        np.testing.assert_array_equal(together.steps_KN[part], alone.steps_KN)
