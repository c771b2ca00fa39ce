"""The statistics of one model version: counts, and durations in whole nanoseconds.

Plain numbers and no lock: `ModelMetrics` guards them. Triton's counters on the metrics page and
its ModelStatistics both read from here, so that they never disagree.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from service.errors import (
    DeadlineExceeded,
    ModelFailed,
    Overloaded,
    TimedOut,
    TooLate,
    Unavailable,
    WaitTooLong,
)
from service.records import Timings

FailureReason = Literal["REJECTED", "CANCELED", "BACKEND", "OTHER"]
# The queue is full, the wait too long, the deadline too early; or it was admitted and got too late.
Refusal = Literal["queue", "wait", "deadline", "late"]


@dataclass(slots=True)
class Duration:
    """A count, and the duration in all."""

    count: int = 0
    ns: int = 0

    def add(self, duration_s: float) -> None:
        self.count += 1
        self.ns += max(0, round(duration_s * 1e9))

    def add_all(self, durations_s: Sequence[float]) -> None:
        self.count += len(durations_s)
        self.ns += max(0, round(sum(durations_s) * 1e9))

    @property
    def us(self) -> int:
        return self.ns // 1000


@dataclass(slots=True)
class ComputeDurations:
    """The three parts of computing: collating, the session run, splitting."""

    compute_input: Duration = field(default_factory=Duration)
    compute_infer: Duration = field(default_factory=Duration)
    compute_output: Duration = field(default_factory=Duration)

    def add(self, input_s: float, infer_s: float, output_s: float) -> None:
        self.compute_input.add(input_s)
        self.compute_infer.add(infer_s)
        self.compute_output.add(output_s)


@dataclass(slots=True)
class Statistics:
    """The counts of one model version since its first load."""

    last_inference_ms: int = 0  # since 1970
    inference_count: int = 0  # rows of answered requests; none of those that the cache answered
    execution_count: int = 0  # batches or steps that ran
    success: Duration = field(default_factory=Duration)  # arrival to answer
    fail: Duration = field(default_factory=Duration)  # arrival to error
    queue: Duration = field(default_factory=Duration)
    compute: ComputeDurations = field(default_factory=ComputeDurations)  # of answered requests
    cache_hit: Duration = field(default_factory=Duration)  # looking up, and taking out
    cache_miss: Duration = field(default_factory=Duration)  # looking up, and putting in
    failures: Counter[FailureReason] = field(default_factory=Counter)
    refusals: Counter[Refusal] = field(default_factory=Counter)
    # By rows. At most as many sizes as a batch may have rows, or a step sequences.
    by_batch_size: dict[int, ComputeDurations] = field(default_factory=dict)

    def succeeded(self, num_rows: int, timings: Sequence[Timings], now_ms: int) -> None:
        """Count computed requests and their rows, the last answered at `now_ms`."""
        self.last_inference_ms = max(self.last_inference_ms, now_ms)
        self.inference_count += num_rows
        self.success.add_all([t.total_s for t in timings])
        self.queue.add_all([t.queue_s for t in timings])
        self.compute.compute_input.add_all([t.collate_s for t in timings])
        self.compute.compute_infer.add_all([t.run_s for t in timings])
        self.compute.compute_output.add_all([t.split_s for t in timings])

    def answered_from_cache(self, timings: Timings, lookup_s: float, now_ms: int) -> None:
        """A request was answered without computing; as in Triton it has waited 0 seconds."""
        self.last_inference_ms = now_ms
        self.success.add(timings.total_s)
        self.queue.add(0.0)
        self.cache_hit.add(lookup_s)

    def failed(self, error: BaseException, duration_s: float) -> None:
        self.failures[_failure_reason(error)] += 1
        self.fail.add(duration_s)
        if (refusal := _refusal(error)) is not None:
            self.refusals[refusal] += 1

    def executed(self, num_rows: int, input_s: float, infer_s: float, output_s: float) -> None:
        """Count a batch or step by its number of rows."""
        self.execution_count += 1
        durations = self.by_batch_size.get(num_rows)
        if durations is None:
            durations = self.by_batch_size[num_rows] = ComputeDurations()
        durations.add(input_s, infer_s, output_s)


def _failure_reason(error: BaseException) -> FailureReason:
    if not isinstance(error, Exception):  # the client left
        return "CANCELED"
    if isinstance(error, Overloaded | DeadlineExceeded | TimedOut | Unavailable):
        return "REJECTED"
    return "BACKEND" if isinstance(error, ModelFailed) else "OTHER"


def _refusal(error: BaseException) -> Refusal | None:
    """Why a request was not computed, where that is for want of time or room."""
    if isinstance(error, WaitTooLong):
        return error.bound
    if isinstance(error, TooLate):
        return "late"
    return "queue" if isinstance(error, Overloaded) else None
