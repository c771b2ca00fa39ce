"""HDR histograms: durations to a thousandth of their size, that add up across processes.

HdrHistogram's layout, kept sparse. Values are whole microseconds. Up to 2,047 each has a bucket of
its own; above, every power of two is cut into 1,024. Two histograms add without loss, which
percentiles do not: workers keep these, and percentiles are taken of their sum.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

UNITS_PER_S = 1_000_000
SUB_BUCKET_BITS = 10
MAX_S = 3_600.0  # longer durations count as this; bounds the buckets


def bucket_of(units: int) -> int:
    """The bucket that a value falls into."""
    shift = max(0, units.bit_length() - SUB_BUCKET_BITS - 1)
    return (shift << SUB_BUCKET_BITS) + (units >> shift)


def highest_of(bucket: int) -> int:
    """The largest value of a bucket: a percentile is never too small."""
    shift = max(0, (bucket >> SUB_BUCKET_BITS) - 1)
    return ((bucket - (shift << SUB_BUCKET_BITS) + 1) << shift) - 1


@dataclass(slots=True)
class Histogram:
    """Counts of durations by bucket."""

    counts: Counter[int] = field(default_factory=Counter)
    total_s: float = 0.0
    max_s: float = 0.0

    @property
    def count(self) -> int:
        return self.counts.total()

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count if self.counts else 0.0

    def record(self, duration_s: float, count: int = 1) -> None:
        duration_s = min(max(duration_s, 0.0), MAX_S)
        self.counts[bucket_of(round(duration_s * UNITS_PER_S))] += count
        self.total_s += duration_s * count
        self.max_s = max(self.max_s, duration_s)

    def add(self, other: "Histogram") -> None:
        self.counts.update(other.counts)
        self.total_s += other.total_s
        self.max_s = max(self.max_s, other.max_s)

    def percentile_s(self, percent: float) -> float:
        """The duration that this percentage does not exceed; 0 of nothing."""
        remaining = self.count * percent / 100
        for bucket in sorted(self.counts):
            remaining -= self.counts[bucket]
            if remaining <= 1e-9:  # of floating point; a count is whole
                return min(highest_of(bucket) / UNITS_PER_S, self.max_s)
        return self.max_s

    def to_dict(self, percents: Sequence[float] = (50, 90, 95, 99, 99.9)) -> dict[str, float]:
        """In milliseconds, as reports have it."""
        figures = {f"p{percent:g}": self.percentile_s(percent) for percent in percents}
        figures |= {"mean": self.mean_s, "max": self.max_s}
        return {name: round(value * 1e3, 3) for name, value in figures.items()} | {
            "count": self.count
        }
