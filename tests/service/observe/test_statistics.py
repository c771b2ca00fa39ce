"""Counts and durations of one model version."""

import asyncio

import pytest

from service.errors import (
    DeadlineExceeded,
    DeviceFailed,
    InvalidArgument,
    ModelFailed,
    Overloaded,
    TimedOut,
    TooEarly,
    TooLate,
    Unavailable,
    WaitTooLong,
)
from service.observe.statistics import Duration, Statistics
from service.records import Timings

NS = 10**9


def nanoseconds(durations: Duration) -> tuple[int, int]:
    return durations.count, durations.ns


def test_batches_are_counted_by_their_number_of_rows() -> None:
    statistics = Statistics()
    for num_rows, seconds in ((2, 1.0), (3, 8.0), (2, 4.0)):
        statistics.executed(num_rows, seconds, 2 * seconds, 3 * seconds)
    assert statistics.execution_count == 3
    assert set(statistics.by_batch_size) == {2, 3}
    of_two = statistics.by_batch_size[2]
    assert nanoseconds(of_two.compute_input) == (2, 5 * NS)
    assert nanoseconds(of_two.compute_infer) == (2, 10 * NS)
    assert nanoseconds(of_two.compute_output) == (2, 15 * NS)
    assert nanoseconds(statistics.by_batch_size[3].compute_input) == (1, 8 * NS)


def test_durations_of_requests_that_are_answered_together_add_up() -> None:
    """The last answer counts, though an earlier one is noted after it."""
    timings = Timings(1.0, queued_s=2.0, started_s=5.0, finished_s=9.0)
    timings.collate_s, timings.run_s, timings.split_s = 1.0, 2.0, 0.5
    statistics = Statistics()
    statistics.succeeded(5, [timings, timings], now_ms=70)
    statistics.succeeded(3, [timings], now_ms=60)
    assert statistics.last_inference_ms == 70
    assert statistics.inference_count == 8
    assert nanoseconds(statistics.success) == (3, 24 * NS)
    assert nanoseconds(statistics.queue) == (3, 9 * NS)
    assert nanoseconds(statistics.compute.compute_input) == (3, 3 * NS)
    assert nanoseconds(statistics.compute.compute_infer) == (3, 6 * NS)
    assert nanoseconds(statistics.compute.compute_output) == (3, 3 * NS // 2)


def test_an_answer_from_the_cache_has_waited_for_nothing() -> None:
    statistics = Statistics()
    statistics.answered_from_cache(Timings(1.0, finished_s=3.0), lookup_s=0.5, now_ms=70)
    assert statistics.last_inference_ms == 70
    assert nanoseconds(statistics.success) == (1, 2 * NS)
    assert nanoseconds(statistics.queue) == (1, 0)
    assert nanoseconds(statistics.cache_hit) == (1, NS // 2)
    assert statistics.inference_count == 0


def test_failures_are_counted_by_their_reason() -> None:
    statistics = Statistics()
    statistics.failed(DeadlineExceeded(""), 0.5)
    statistics.failed(Overloaded(""), 1.0)
    statistics.failed(ModelFailed(""), 1.5)
    assert statistics.failures == {"REJECTED": 2, "BACKEND": 1}
    assert statistics.refusals == {"queue": 1}
    assert nanoseconds(statistics.fail) == (3, 3 * NS)


@pytest.mark.parametrize(
    ("error", "reason", "refusal"),
    [
        (asyncio.CancelledError(), "CANCELED", None),
        (GeneratorExit(), "CANCELED", None),
        (Unavailable(""), "REJECTED", None),
        (TimedOut(""), "REJECTED", None),
        (TooLate(2.0, 1.0), "REJECTED", "late"),
        (WaitTooLong(2.0, 1.0), "REJECTED", "wait"),
        (TooEarly(2.0, 1.0), "REJECTED", "deadline"),
        (DeviceFailed(""), "BACKEND", None),
        (InvalidArgument(""), "OTHER", None),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_errors_and_clients_that_left_have_triton_s_reason(
    error: BaseException, reason: str, refusal: str | None
) -> None:
    statistics = Statistics()
    statistics.failed(error, 1.0)
    assert dict(statistics.failures) == {reason: 1}
    assert dict(statistics.refusals) == ({refusal: 1} if refusal else {})


def test_a_clock_that_is_set_back_takes_nothing_from_a_duration() -> None:
    duration = Duration()
    duration.add(-1.0)
    duration.add_all([-2.0, 1.0])
    assert nanoseconds(duration) == (3, 0)
