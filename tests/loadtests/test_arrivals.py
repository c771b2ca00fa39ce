"""Arrivals have the statistics that their names promise."""

import random
from itertools import pairwise

import numpy as np
import pytest

from loadtests.load.arrivals import bursts, constant, poisson, steady


def gaps(due_s: list[float]) -> np.ndarray:
    return np.diff(np.array([0.0, *due_s]))


def test_poisson_arrivals_have_exponential_gaps() -> None:
    """Rate 200/s over 50 s: as many as expected within four deviations; deviation equals mean."""
    due_s = list(poisson(steady(200), 200, 50, random.Random(1)))
    assert len(due_s) == pytest.approx(10_000, abs=4 * 100)
    between = gaps(due_s)
    assert between.std() / between.mean() == pytest.approx(1, abs=0.05)
    assert np.mean(between > 1 / 200) == pytest.approx(np.exp(-1), abs=0.02)


def test_two_workers_of_half_the_rate_are_poisson_too() -> None:
    halves = [poisson(steady(100), 100, 50, random.Random(seed)) for seed in (1, 2)]
    between = gaps(sorted([due_s for half in halves for due_s in half]))
    assert between.std() / between.mean() == pytest.approx(1, abs=0.05)


def test_constant_arrivals_are_evenly_spread_and_phases_interleave() -> None:
    first, second = (list(constant(steady(8), 1, phase)) for phase in (0.0, 0.5))
    assert len(first) == len(second) == 8
    together = sorted(first + second)
    assert [late - early for early, late in pairwise(together)] == pytest.approx([1 / 16] * 15)


@pytest.mark.parametrize(
    ("rate", "peak", "inside", "expected"),
    [
        (bursts(50, 4, 5, 1), 200, lambda at_s: at_s % 5 >= 4, 200),
        (bursts(50, 4, 5, 1), 200, lambda at_s: at_s % 5 < 4, 50),
    ],
)
def test_rates_that_change_are_met_where_they_hold(rate, peak, inside, expected) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
    due_s = list(poisson(rate, peak, 100, random.Random(3)))
    duration_s = np.mean([inside(at_s) for at_s in np.arange(0, 100, 0.01)]) * 100
    found = sum(map(inside, due_s)) / duration_s
    assert found == pytest.approx(expected, abs=4 * (expected / duration_s) ** 0.5)
