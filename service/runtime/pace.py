"""The duration of runs, learned as they end, and so the time that waiting requests will take.

Pure: no clock, thread or array; the time is passed in. A run's price is an overhead and a price per
unit of work (`service/runtime/cost.py`), both in seconds. A model whose runs were measured while it
loaded begins with those prices; another one admits everything until a few runs have ended.

Concurrent runs share a machine, so each counts its share of the time: half a second of a second in
which two ran. The shares add up to the time in which all waiting requests are done,
whether concurrent runs slow each other down, as on the processors of one machine, or do not.
"""

from dataclasses import dataclass

from service.runtime.cost import CostCurve

# Of the difference between a run's time and its price, what the price is moved by. A run that is
# three times as long as the one before is nearly paid for after eight.
GAIN = 0.25
MAX_SURPRISE = 1.0  # of the price, in either direction, that one run may count for
MIN_RUNS = 3  # until unmeasured prices are used: the first runs of a session are slow

LATE_SHARE = 0.01  # of answers, that may be late: `Trust.factor` follows it
# The same for waits without a deadline, which are no promises: it comes down as fast as it goes up.
USUAL_LATE_SHARE = 0.1
USUAL_RISE = 1.25  # by a burst that came before its first answer
TRUST_GAIN = 0.08  # of the factor; larger steps refuse more than is needed, between two of them
MAX_FACTOR = 4.0
SPARE_SHARE = 0.1  # of the time to a deadline: the client's clock started before ours


@dataclass(frozen=True, slots=True)
class Work:
    """The work of runs: `amount` in tokens of text, without overheads."""

    num_runs: float
    amount: float


@dataclass(slots=True, eq=False)
class PacedRun:
    """A run under way."""

    work: Work
    began_share_s: float  # on the clock of shares
    is_sound: bool = True  # False: it failed, and its time says nothing


class Prices:
    """The duration of runs of one kind: an overhead, and a price per unit of work."""

    def __init__(self, cost: CostCurve, gain: float = GAIN) -> None:
        self._overhead, self._unit = cost.overhead, 1.0  # in tokens, until `_scale_s` is known
        self._scale_s = cost.token_s  # 0: not known
        self._gain = gain
        self._first_scales_s: list[float] = []

    @property
    def is_known(self) -> bool:
        return self._scale_s > 0

    def price_s(self, work: Work) -> float:
        """Seconds, of runs that have the machine to themselves; 0 where nothing is known."""
        return self._scale_s * (self._overhead * work.num_runs + self._unit * work.amount)

    def learn(self, work: Work, took_s: float) -> None:
        """Move the prices towards what a run of this work took."""
        if not self.is_known:
            self._learn_first(work, took_s)
            return
        overhead_s = self._scale_s * self._overhead * work.num_runs
        work_s = self._scale_s * self._unit * work.amount
        price_s = overhead_s + work_s
        if price_s <= 0:
            return
        most_s = MAX_SURPRISE * price_s
        moved_s = self._gain * min(most_s, max(-most_s, took_s - price_s))
        # The part that weighs more is corrected more: batches of one size change its price only.
        step = moved_s / (overhead_s**2 + work_s**2)
        self._overhead *= 1 + step * overhead_s
        self._unit *= 1 + step * work_s

    def _learn_first(self, work: Work, took_s: float) -> None:
        price = self._overhead * work.num_runs + self._unit * work.amount
        if price > 0 and took_s > 0:
            self._first_scales_s.append(took_s / price)
        if len(self._first_scales_s) >= MIN_RUNS:
            self._scale_s = min(self._first_scales_s)


class Pace:
    """The prices of one model's runs, and the runs under way."""

    def __init__(self, cost: CostCurve, max_runs: int) -> None:
        self.max_runs = max_runs  # at once
        self._prices = Prices(cost)
        self._running: dict[PacedRun, None] = {}
        self._share_s = 0.0  # each run's share of the time until `_counted_s`
        self._counted_s = 0.0

    @property
    def is_known(self) -> bool:
        return self._prices.is_known

    @property
    def num_running(self) -> int:
        return len(self._running)

    def price_s(self, work: Work) -> float:
        """Seconds, of runs that have the machine to themselves; 0 where nothing is known."""
        return self._prices.price_s(work)

    def begin(self, work: Work, now_s: float) -> PacedRun:
        self._count(now_s)
        run = PacedRun(work, self._share_s)
        self._running[run] = None
        return run

    def end(self, run: PacedRun, now_s: float) -> None:
        self._count(now_s)
        del self._running[run]
        if run.is_sound:
            self._prices.learn(run.work, self._share_s - run.began_share_s)

    def left_s(self, now_s: float) -> float:
        """The seconds left of the current runs."""
        self._count(now_s)
        return sum(
            max(0.0, self.price_s(run.work) - (self._share_s - run.began_share_s))
            for run in self._running
        )

    def _count(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._counted_s)  # callers may have read the clock before
        if self._running:
            self._share_s += passed_s / len(self._running)
        self._counted_s += passed_s


class Trust:
    """The factor by which answers take longer than expected, but for a share of them.

    Of promises, that is one in a hundred; with a half it is the middle of what answers take.

    Followed by steps: up at each answer that was late, down a little at each that was not. Many
    are late at once where a machine stalls: they say that the factor with which they were admitted
    was too small, and not that it should be many times as large.
    """

    def __init__(self, max_rise: float = 2.0, late_share: float = LATE_SHARE) -> None:
        self.factor = 1.0
        self._late_share = late_share
        self._max_rise = max_rise  # of the factor, by answers that were admitted with it

    def answered(self, expected_s: float, took_s: float) -> None:
        """Count an answer as late that took longer than it was trusted to."""
        self.add(is_late=took_s > self.factor * expected_s, admitted_with=self.factor)

    def add(self, *, is_late: bool, admitted_with: float) -> None:
        """Count an answer; `admitted_with` is the factor as it was then."""
        if is_late:
            raised = self.factor * (1 + TRUST_GAIN * (1 - self._late_share))
            most = min(MAX_FACTOR, self._max_rise * admitted_with)
            self.factor = max(self.factor, min(raised, most))
        else:
            self.factor = max(1.0, self.factor * (1 - TRUST_GAIN * self._late_share))
