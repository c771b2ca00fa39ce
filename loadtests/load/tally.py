"""`Tally`: what became of requests, and how long they took from when they were due.

From when a request was due, not from when it was sent: a client that waits for a slow answer sends
the next one late, and would leave the wait out of its figures (coordinated omission). Requests due
while warming up are sent and not counted. Tallies of several workers add up.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from loadtests.load.histogram import Histogram
from loadtests.load.scenario import Load, Slo, Traffic
from loadtests.load.workloads import LEFT, OK, Reply

NOT_SENT = "NOT_SENT"  # the generator had too many in flight
NO_LOSS = (OK, LEFT)
NO_BOUNDS = Slo()


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. Seconds from the start of the load."""

    due_s: float
    sent_s: float
    ended_s: float
    reply: Reply

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.due_s


@dataclass(slots=True)
class Answers:
    """The outcomes of one kind of traffic."""

    statuses: Counter[str] = field(default_factory=Counter)
    num_good: int = 0
    num_tokens: int = 0
    latency: Histogram = field(default_factory=Histogram)
    first_token: Histogram = field(default_factory=Histogram)
    inter_token: Histogram = field(default_factory=Histogram)

    @property
    def num_sent(self) -> int:
        return self.statuses.total() - self.statuses[NOT_SENT]

    @property
    def num_lost(self) -> int:
        """Requests that got no answer, whatever the status."""
        return self.statuses.total() - sum(self.statuses[status] for status in NO_LOSS)

    def record(self, sample: Sample, is_good: bool) -> None:
        """Durations are those of answers: a refusal at once would make a server look fast."""
        self.statuses[sample.reply.status] += 1
        self.num_good += is_good
        if sample.reply.status != OK:
            return
        self.latency.record(sample.latency_s)
        chunks = sample.reply.chunks
        if chunks:
            self.num_tokens += sum(count for _, count in chunks)
            self.first_token.record(chunks[0][0] - sample.due_s)
        for (before_s, _), (at_s, count) in pairwise(chunks):
            self.inter_token.record((at_s - before_s) / count, count)

    def add(self, other: "Answers") -> None:
        self.statuses.update(other.statuses)
        self.num_good += other.num_good
        self.num_tokens += other.num_tokens
        self.latency.add(other.latency)
        self.first_token.add(other.first_token)
        self.inter_token.add(other.inter_token)


@dataclass(slots=True)
class Tally:
    """Everything that one run counts, by kind of traffic and by second.

    Rates count answers that came while requests were measured, whenever they were due: a server
    that is behind answers some of them later, and they would make its rate too high.
    """

    load: Load
    slo: Slo
    by_traffic: dict[str, Answers] = field(default_factory=lambda: defaultdict(Answers))
    by_second: dict[int, Answers] = field(default_factory=lambda: defaultdict(Answers))
    send_lag: Histogram = field(default_factory=Histogram)
    num_answers_in_time: int = 0
    num_good_in_time: int = 0

    def record(self, traffic: Traffic, sample: Sample) -> None:
        """A slow reader makes its own latency: its answers are good if they are whole."""
        is_good = is_good_answer(sample, NO_BOUNDS if traffic.read_pause_ms else self.slo)
        if self.load.warm_up_s <= sample.ended_s < self.load.end_s:
            self.num_answers_in_time += sample.reply.status == OK
            self.num_good_in_time += is_good
        if sample.due_s >= self.load.warm_up_s:
            self.send_lag.record(sample.sent_s - sample.due_s)
            self.by_traffic[traffic.title].record(sample, is_good)
            self.by_second[int(sample.due_s)].record(sample, is_good)

    def record_unsent(self, traffic: Traffic, due_s: float) -> None:
        if due_s >= self.load.warm_up_s:
            self.by_traffic[traffic.title].statuses[NOT_SENT] += 1

    def add(self, other: "Tally") -> None:
        for title, answers in other.by_traffic.items():
            self.by_traffic[title].add(answers)
        for second, answers in other.by_second.items():
            self.by_second[second].add(answers)
        self.send_lag.add(other.send_lag)
        self.num_answers_in_time += other.num_answers_in_time
        self.num_good_in_time += other.num_good_in_time

    @property
    def total(self) -> Answers:
        return sum_of(self.by_traffic.values())

    @property
    def good_share(self) -> float:
        """The share of due requests with a good answer."""
        total = self.total
        return total.num_good / max(1, total.statuses.total() - total.statuses[LEFT])

    @property
    def faults(self) -> list[str]:
        """Why this run tells of the generator rather than of the server; empty if it is valid."""
        faults = []
        lag_ms = self.send_lag.percentile_s(99) * 1e3
        if lag_ms > self.load.max_send_lag_ms:
            faults.append(
                f"requests were sent late: p99 {lag_ms:.1f} ms, the limit is "
                f"{self.load.max_send_lag_ms:g} ms; give the generator more processes or less rate"
            )
        if unsent := self.total.statuses[NOT_SENT]:
            faults.append(
                f"{unsent} requests were not sent: {self.load.max_in_flight} were in flight"
            )
        return faults


def sum_of(parts: Iterable[Answers]) -> Answers:
    total = Answers()
    for part in parts:
        total.add(part)
    return total


def is_good_answer(sample: Sample, slo: Slo) -> bool:
    """An answer within every bound of the SLO."""
    if sample.reply.status != OK or (slo.latency_ms and sample.latency_s * 1e3 > slo.latency_ms):
        return False
    chunks = sample.reply.chunks
    if not chunks:
        return True
    (first_s, first_count), (last_s, _) = chunks[0], chunks[-1]
    if slo.first_token_ms and (first_s - sample.due_s) * 1e3 > slo.first_token_ms:
        return False
    num_later = sum(count for _, count in chunks) - first_count
    between_ms = (last_s - first_s) * 1e3 / max(1, num_later)
    return not slo.inter_token_ms or between_ms <= slo.inter_token_ms
