"""The expected wait of a queue's requests; refuses a request that would wait too long.

Pure: the queue passes in items and the time, under its lock. The answer to "how long" is the price
of what runs and of all that waits and goes first, `service/runtime/pace.py`. Nothing is refused
while a run is free and nothing waits, so that prices which are too high are found out.
"""

from dataclasses import dataclass
from math import ceil

from service.batching.request import Item
from service.errors import TooEarly, WaitTooLong
from service.runtime.cost import CostCurve
from service.runtime.pace import (
    SPARE_SHARE,
    USUAL_LATE_SHARE,
    USUAL_RISE,
    Pace,
    PacedRun,
    Trust,
    Work,
)

Lane = tuple[int, bool]  # a level, and whether it has waited longer than its timeout


@dataclass(slots=True)
class Load:
    """The work of items in runs."""

    num_rows: int = 0
    num_tokens: int = 0
    amount: float = 0.0  # in tokens, without the overheads of runs

    def add(self, other: "Load", sign: int = 1) -> None:
        self.num_rows += sign * other.num_rows
        self.num_tokens += sign * other.num_tokens
        self.amount += sign * other.amount


@dataclass(frozen=True, slots=True)
class RunBounds:
    """The bounds of one run."""

    num_rows: int
    num_tokens: int
    amount: float

    def runs_of(self, load: Load) -> float:
        """The number of runs that a load takes, at least one."""
        return max(
            1.0,
            load.num_rows / self.num_rows,
            load.num_tokens / self.num_tokens,
            load.amount / self.amount,
        )


@dataclass(frozen=True, slots=True)
class Expectation:
    """Seconds from now, of the last of some load that is computed in its order."""

    begins_s: float
    ends_s: float


class Backlog:
    """Loads by lane; lanes with lower keys go first."""

    def __init__(self, cost: CostCurve, bounds: RunBounds, max_runs: int) -> None:
        self.pace = Pace(cost, max_runs)
        self.trust = Trust()
        self.usual = Trust(USUAL_RISE, USUAL_LATE_SHARE)
        self._cost = cost
        self._bounds = bounds
        self._loads: dict[Lane, Load] = {}

    def load_of(self, item: Item) -> Load:
        num_tokens = item.num_rows * item.num_tokens
        amount = self._cost.work(item.num_rows, item.num_tokens, num_tokens)
        return Load(item.num_rows, num_tokens, amount)

    def add(self, lane: Lane, item: Item) -> None:
        self._loads.setdefault(lane, Load()).add(self.load_of(item))

    def remove(self, lane: Lane, item: Item) -> None:
        self._loads[lane].add(self.load_of(item), -1)

    def forget(self, lane: Lane) -> None:
        """Forget what rounding left of a lane's load, as no request waits there."""
        self._loads.pop(lane, None)

    def begin(self, items: list[Item], now_s: float) -> PacedRun:
        """A run of these begins; say when it ends."""
        longest = max(item.num_tokens for item in items)
        num_rows = sum(item.num_rows for item in items)
        num_tokens = sum(item.num_rows * item.num_tokens for item in items)
        work = Work(1, self._cost.work(num_rows, longest, num_tokens))
        return self.pace.begin(work, now_s)

    def ahead_of(self, lane: Lane) -> Load:
        """The work ahead of a new request."""
        ahead = Load()
        for other, load in self._loads.items():
            if other <= lane:
                ahead.add(load)
        return ahead

    def expect(self, load: Load, now_s: float) -> Expectation:
        """When a load is done, that goes next."""
        pace, num_runs = self.pace, self._bounds.runs_of(load)
        all_s = pace.left_s(now_s) + pace.price_s(Work(num_runs, load.amount))
        last_s = pace.price_s(Work(1, load.amount / num_runs))
        # The last run has its share of the machine only.
        at_once = min(pace.max_runs, pace.num_running + ceil(num_runs))
        ends_s = all_s + (at_once - 1) * last_s
        return Expectation(max(0.0, ends_s - at_once * last_s), ends_s)

    def _begins_s(self, ahead: Load, own: Load, now_s: float) -> float:
        """When the first run of a request begins: a large one does not wait for itself."""
        num_runs = self._bounds.runs_of(own)
        first = Load(
            ceil(own.num_rows / num_runs), ceil(own.num_tokens / num_runs), own.amount / num_runs
        )
        first.add(ahead)
        return self.expect(first, now_s).begins_s

    def check(
        self, lane: Lane, own: Load, now_s: float, deadline_s: float | None, max_wait_s: float
    ) -> float:
        """Raise `WaitTooLong` for a request that would wait too long, or be late as `TooEarly`."""
        pace, load = self.pace, self.ahead_of(lane)
        is_idle = pace.num_running < pace.max_runs and not load.num_rows
        if is_idle or not pace.is_known:
            return 0.0
        begins_s = self._begins_s(load, own, now_s)
        load.add(own)
        expected = self.expect(load, now_s)
        fits_next = self._bounds.runs_of(load) <= 1  # however slow a run is, the next may fill up
        wait_s = self.usual.factor * begins_s
        if wait_s > max_wait_s and not fits_next:
            raise WaitTooLong(wait_s, max_wait_s)
        if deadline_s is not None:
            left_s = max(0.0, deadline_s - now_s)
            ends_s = self.trust.factor * expected.ends_s / (1 - SPARE_SHARE)
            if ends_s > left_s:
                raise TooEarly(ends_s, left_s)
        return expected.ends_s
