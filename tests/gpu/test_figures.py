"""How far outputs are from PyTorch's, and what is too far."""

import numpy as np
import pytest

from loadtests.gpu.figures import LIMITS, Figures, Limits, compare, largest, percent

RANDOM = np.random.default_rng(0).standard_normal((50, 8))
LIMIT = Limits(relative=0.1, mean_cosine=0.99, tie=0.01)


def figures_of(by_graph: np.ndarray, *, is_choice: bool = True, tie: float = 0.01) -> Figures:
    return compare(by_graph, RANDOM, tie, is_choice=is_choice)


def test_equal_outputs_have_no_difference() -> None:
    figures = figures_of(RANDOM.copy())
    assert (figures.max_abs, figures.relative, figures.agreement) == (0.0, 0.0, 1.0)
    assert figures.num_rows == 50
    assert figures.mean_cosine == pytest.approx(1.0)
    assert figures.is_within(LIMITS["fp32"])


def test_differences_are_relative_to_the_size_of_the_outputs() -> None:
    """A difference of 0.5 in outputs of root mean square r is 0.5 / r, whatever their unit."""
    wrong = RANDOM.copy()
    wrong[3, 2] += 0.5
    size = np.sqrt((RANDOM**2).mean())
    assert figures_of(wrong).max_abs == pytest.approx(0.5)
    assert figures_of(wrong).relative == pytest.approx(0.5 / size)
    scaled = compare(1_000 * wrong, 1_000 * RANDOM, 0.01, is_choice=True)
    assert scaled.relative == pytest.approx(0.5 / size)
    assert not scaled.is_within(LIMIT)


def test_one_row_of_another_text_is_too_far() -> None:
    mixed = RANDOM.copy()
    mixed[[4, 5]] = mixed[[5, 4]]
    assert not any(figures_of(mixed).is_within(limits) for limits in LIMITS.values())


def test_noise_of_a_precision_is_within_its_limits_and_not_within_those_of_a_finer_one() -> None:
    """Of 3 % of the size, as float16 at worst has, and a tenth of that in the largest value."""
    noise = np.random.default_rng(1).uniform(-0.03, 0.03, RANDOM.shape)
    figures = figures_of(RANDOM + noise, tie=LIMITS["fp16"].tie)
    assert figures.is_within(LIMITS["fp16"])
    assert not figures.is_within(LIMITS["fp32"])


def test_another_best_value_counts_unless_it_is_as_good() -> None:
    by_network = np.array([[1.0, 0.0, 0.999], [1.0, 0.0, 0.2]])
    by_graph = by_network[:, ::-1]
    figures = compare(by_graph, by_network, 0.01, is_choice=True)
    assert figures.agreement == 0.5
    assert compare(by_graph, by_network, 0.01, is_choice=False).agreement is None


def test_outputs_that_are_no_numbers_are_within_no_limits() -> None:
    wrong = RANDOM.copy()
    wrong[0, 0] = np.nan
    figures = figures_of(wrong, is_choice=False)
    assert not any(figures.is_within(limits) for limits in LIMITS.values())
    pairs = [(each, RANDOM) for each in (RANDOM, wrong, RANDOM + 1.0)]
    assert np.isnan(largest(pairs, LIMITS["bf16"], is_choice=False).relative)
    assert not figures_of(np.zeros_like(RANDOM)).is_within(LIMITS["bf16"])


def test_outputs_of_another_shape_are_refused() -> None:
    with pytest.raises(AssertionError, match=r"\(49, 8\) are compared with \(50, 8\)"):
        figures_of(RANDOM[1:])


def test_percentages_have_three_digits_of_any_size() -> None:
    assert [percent(share) for share in (1.0, 0.0123, 1.5e-6)] == ["100 %", "1.23 %", "0.00015 %"]
