"""When requests are due: seconds from the start, decided before any answer is known.

Pure. Rates may change with time; Poisson arrivals then thin those of the highest rate (Lewis and
Shedler 1979), which keeps gaps exponential wherever the rate stays the same.
"""

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

Rate: TypeAlias = Callable[[float], float]  # requests per second, by seconds from the start

ROUNDING_S = 1e-9  # of adding up gaps


def poisson(
    rate: Rate, peak: float, duration_s: float, generator: random.Random
) -> Iterator[float]:
    """Independent of one another, as those of many users are. `peak` bounds the rate."""
    due_s = generator.expovariate(peak)
    while due_s < duration_s:
        if generator.random() * peak < rate(due_s):
            yield due_s
        due_s += generator.expovariate(peak)


def constant(rate: Rate, duration_s: float, phase: float = 0.0) -> Iterator[float]:
    """Evenly spread. `phase`, a share of the first gap, keeps several workers apart."""
    due_s = phase / rate(0.0)
    while due_s < duration_s - ROUNDING_S:
        yield due_s
        due_s += 1 / rate(due_s)


def steady(rate: float) -> Rate:
    return lambda _: rate


def bursts(rate: float, factor: float, every_s: float, burst_s: float) -> Rate:
    """`factor` times the rate for `burst_s` at the end of every `every_s`."""
    return lambda at_s: rate * (factor if at_s % every_s >= every_s - burst_s else 1.0)
