"""Ratios of two programs that took turns: the median, and the lowest and highest of all rounds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster; each round is compared with itself, whatever the machine did."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


def times_faster(ours_s: Sequence[float], theirs_s: Sequence[float]) -> Ratio:
    """Ours over theirs, from the seconds of the same rounds."""
    ratios = [theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def per_second(amount: int, seconds: Sequence[float]) -> float:
    """At the median duration."""
    return amount / statistics.median(seconds)
