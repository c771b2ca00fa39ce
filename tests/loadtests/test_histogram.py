"""Percentiles within a thousandth, and sums that lose nothing."""

import math

import numpy as np
import pytest

from loadtests.load.histogram import Histogram, bucket_of, highest_of


def histogram_of(values: np.ndarray) -> Histogram:
    histogram = Histogram()
    for value in values.tolist():
        histogram.record(value)
    return histogram


def test_buckets_cover_every_value_without_gaps() -> None:
    assert [bucket_of(units) for units in range(2_048)] == list(range(2_048))
    for bucket in range(20_000):
        highest = highest_of(bucket)
        assert bucket_of(highest) == bucket
        assert bucket_of(highest + 1) == bucket + 1


@pytest.mark.parametrize("scale_s", [1e-4, 1e-2, 1.0, 100.0])
def test_percentiles_are_within_a_thousandth(scale_s: float) -> None:
    values = np.random.default_rng(1).exponential(scale_s, 5_000)
    histogram = histogram_of(values)
    for percent in (1, 50, 90, 99, 99.9, 100):
        rank = math.ceil(round(len(values) * percent / 100, 6))
        exact = np.sort(values)[rank - 1]
        assert histogram.percentile_s(percent) == pytest.approx(exact, rel=1.1e-3, abs=1e-6)
    assert histogram.mean_s == pytest.approx(values.mean())


def test_histograms_of_parts_add_up_to_that_of_the_whole() -> None:
    """Percentiles of parts do not."""
    values = np.random.default_rng(2).lognormal(-4, 2, 3_000)
    whole, total = histogram_of(values), Histogram()
    for part in np.array_split(values, 3):
        total.add(histogram_of(part))
    assert total.counts == whole.counts
    assert total.to_dict() == whole.to_dict()


def test_nothing_has_percentiles_of_zero_and_an_hour_is_the_most() -> None:
    histogram = Histogram()
    assert histogram.percentile_s(99) == histogram.mean_s == 0.0
    histogram.record(1e9)
    histogram.record(-1.0)
    assert (histogram.percentile_s(0), histogram.percentile_s(100)) == (0.0, 3_600.0)
