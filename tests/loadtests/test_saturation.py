"""The search finds what a simulated system can do, within its precision and its number of runs."""

import math
import random

import pytest

from loadtests.load.arrivals import poisson, steady
from loadtests.load.saturation import saturation


@pytest.mark.parametrize("capacity", [0.7, 10, 99, 100, 5_000])
@pytest.mark.parametrize("first_rate", [1.0, 100.0, 10_000.0])
def test_found_rate_is_within_the_precision(capacity: float, first_rate: float) -> None:
    found = saturation(lambda rate: rate <= capacity, first_rate, max_runs=40, precision=0.05)
    assert found.meeting <= capacity < found.failing <= found.meeting * 1.05
    assert found.num_runs < 30


def test_number_of_runs_is_bounded() -> None:
    tried: list[float] = []

    def never(rate: float) -> bool:
        tried.append(rate)
        return False

    found = saturation(never, 64, max_runs=5)
    assert (found.meeting, found.failing, tried) == (0, 4, [64, 32, 16, 8, 4])
    always = saturation(lambda _: True, 1, max_runs=3)
    assert (always.meeting, always.failing) == (4, math.inf)


def test_search_on_a_simulated_queue_agrees_with_queueing_theory() -> None:
    """One server, 10 ms each, Poisson arrivals: M/D/1 waits rho / (2 (1 - rho)) * 10 ms on average.

    A mean latency of 30 ms is met up to rho = 0.8: 80 requests/s.
    """

    def mean_latency_s(rate: float) -> float:
        free_at_s, latencies = 0.0, []
        for due_s in poisson(steady(rate), rate, 2_000, random.Random(5)):
            free_at_s = max(free_at_s, due_s) + 0.010
            latencies.append(free_at_s - due_s)
        return sum(latencies) / len(latencies)

    found = saturation(lambda rate: mean_latency_s(rate) <= 0.030, 20, precision=0.02)
    assert found.meeting == pytest.approx(80, rel=0.05)
