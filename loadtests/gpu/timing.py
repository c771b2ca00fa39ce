"""Times of several ways to do the same work, taken in turns: medians with quartiles.

The ways of one round are compared with each other, so that a clock that changes, or other work on
the machine, changes them alike. Rounds go on until there are enough or the time is over.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import floor, log10
from typing import Any

from loadtests.load.turns import turns

MAX_ROUNDS, MIN_ROUNDS, WARM_UP = 200, 5, 2
NOISE_LIMIT = 0.1  # a wider middle half of the times is pointed out

Way = Callable[[], object]  # does the work once, and returns when it is done


@dataclass(frozen=True, slots=True)
class Quartiles:
    """The median of some figures, the quartiles around it, and how many there were."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quartiles":
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))

    @property
    def spread(self) -> float:
        """The width of the middle half over the median."""
        return (self.high - self.low) / self.median

    def per_second(self, amount: float) -> "Quartiles":
        """The figures of `amount` units of work, where these are seconds."""
        return Quartiles(amount / self.median, amount / self.high, amount / self.low, self.count)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def text(self, digits: int = 3) -> str:
        """The median with its quartiles in brackets, in `digits` significant digits."""
        low, high = short(self.low, digits), short(self.high, digits)
        return f"{short(self.median, digits)} ({low} to {high})"


def short(value: float, digits: int = 3) -> str:
    """A number in significant digits, without an exponent: 1,234, 12.3, 0.0123."""
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - floor(log10(abs(value))))
    return f"{value:,.{decimals}f}"


def interleaved(
    ways: Mapping[str, Way],
    time_s: float,
    *,
    min_rounds: int = MIN_ROUNDS,
    max_rounds: int = MAX_ROUNDS,
    warm_up: int = WARM_UP,
) -> dict[str, list[float]]:
    """The seconds of each way in the same rounds; at least `min_rounds`, whatever the time.

    A round that is not whole is left out.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    started_s = time.perf_counter()
    gc.collect()
    gc.disable()  # a collection would be in one way's time
    try:
        for name, counts in turns(ways, max_rounds, warm_up):
            is_round_over = len({len(each) for each in seconds.values()}) == 1
            num_rounds = min(map(len, seconds.values()))
            is_late = time.perf_counter() - started_s > time_s
            if is_round_over and num_rounds >= min_rounds and is_late:
                break
            begun_s = time.perf_counter()
            ways[name]()
            taken_s = time.perf_counter() - begun_s
            if counts:
                seconds[name].append(taken_s)
    finally:
        gc.enable()
    return seconds


def ratios(ours_s: Sequence[float], theirs_s: Sequence[float]) -> Quartiles:
    """Speed of ours over theirs, from the seconds of the same rounds."""
    return Quartiles.of([theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True)])


def noise_of(seconds: Mapping[str, Sequence[float]], what: str) -> list[str]:
    """Each way whose times vary much, with the width of their middle half over the median."""
    spreads = {name: Quartiles.of(values).spread for name, values in seconds.items()}
    return [
        f"{what}, {name} {spread:.0%}" for name, spread in spreads.items() if spread > NOISE_LIMIT
    ]
