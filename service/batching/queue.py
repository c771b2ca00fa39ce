"""Form batches from waiting items under a token budget.

Pure policy: no clock, thread, array or metric. The engine holds the lock and
passes the time in, so any decision made here can be replayed in a unit test.

A padded batch costs an overhead and the work of its rows, `service/runtime/cost.py`. Of that the
part is useful that its rows would cost without padding, each alone. So the batch to run is the
one that is most useful for its cost,

    useful / (overhead + work)

among the batches of neighbours in length that hold the **oldest** item and waste no more on
padding, `work - useful`, than they save in runs, `(items - 1) * overhead`. The oldest always
goes, so an item waits for at most as many batches as there were items before it,
whatever their lengths. If costs were measured, a batch stops growing when its overhead hardly
matters any more, `max_cost`: later requests would only wait longer for it.

With priority levels, the batch is formed from the first level with waiting requests; lower
levels fill the rest of it, if they make no row of it longer. There is no other rule
between levels: under a constant load of the first, the last starves.
Within a level, requests that are past their timeout and may still wait come last.

Waiting requests have a price in seconds (`service/runtime/pace.py`). A request that would wait
longer than its level allows, or be answered after its deadline, is refused on arrival; an admitted
one that can no longer be done in time ends before any more of it is computed.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf

import numpy as np

from service.batching.backlog import Backlog, Lane, Load, RunBounds
from service.batching.request import Item, Request
from service.contract.policies import QueuePolicies
from service.errors import (
    AttendantError,
    DeadlineExceeded,
    InvalidArgument,
    Overloaded,
    TimedOut,
    TooLate,
)
from service.runtime.cost import CostCurve
from service.runtime.pace import SPARE_SHARE, PacedRun

MAX_BATCHES_AHEAD = 4  # full ones, that items of requests of several texts are chosen from
ROUNDING = 1e-6  # tokens; sums of prices are off by less


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of one model's queue and batches."""

    max_rows: int = 64
    max_tokens: int = 16_384  # B * S of one batch, padding included
    queue: QueuePolicies = field(default_factory=QueuePolicies)
    max_waiting_rows: int = 32_768
    max_waiting_tokens: int = 262_144
    cost: CostCurve = field(default_factory=CostCurve)
    max_cost: float = inf  # of a batch of several items, in tokens
    run_cost: CostCurve = field(default_factory=CostCurve)  # by the clock; `cost` forms batches
    max_candidates: int = 256  # items looked at when a batch is formed
    max_delay_s: float = 0.0  # how long a batch may wait for company; 0: not at all
    preferred_rows: tuple[int, ...] = ()  # sizes to aim at while the delay lasts


@dataclass(frozen=True, slots=True)
class Size:
    """Of a request."""

    num_rows: int = 0
    num_tokens: int = 0


NOTHING = Size()


@dataclass(slots=True)
class _Place:
    """The place of one request's items."""

    lane: Lane
    num_items: int
    times_out_s: float  # unless one of its items runs by then


class BatchQueue:
    """Waiting items by level, oldest first; never more than the limits allow."""

    def __init__(self, limits: BatchLimits, max_runs: int = 1) -> None:
        self._limits = limits
        self._backlog = Backlog(
            limits.run_cost,
            RunBounds(
                limits.max_rows,
                limits.max_tokens,
                max(1.0, limits.max_cost - limits.cost.overhead),
            ),
            max_runs,
        )
        self._lanes: dict[Lane, dict[Item, None]] = {}  # each in order of arrival
        self._places: dict[Request, _Place] = {}
        self._num_by_level: Counter[int] = Counter()
        self._next_due_s = inf  # no request is late before
        self.num_rows = 0
        self.num_tokens = 0

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def __repr__(self) -> str:
        return f"<BatchQueue {self.num_requests} requests, {self.num_tokens} tokens>"

    @property
    def num_requests(self) -> int:
        return len(self._places)

    def check_room(
        self, now_s: float, priority: int = 0, deadline_s: float | None = None, size: Size = NOTHING
    ) -> None:
        """Raise `Overloaded` if a request of about this size would be refused.

        An empty queue has room for any size, since it is an estimate: `put` knows the real one.
        """
        level = self._limits.queue.level_of(priority)
        room = Size(
            min(size.num_rows, self._limits.max_waiting_rows),
            min(size.num_tokens, self._limits.max_waiting_tokens),
        )
        self._check_counts(level, room)
        load = Load(size.num_rows, size.num_tokens, size.num_tokens)
        self._check_wait(level, load, now_s, deadline_s)

    def _check_counts(self, level: int, size: Size) -> None:
        limits = self._limits
        if (
            self._num_by_level.get(level, 0) >= limits.queue.of(level).max_requests
            or self.num_rows + size.num_rows > limits.max_waiting_rows
            or self.num_tokens + size.num_tokens > limits.max_waiting_tokens
        ):
            raise Overloaded("Exceeds maximum queue size")

    def _check_wait(self, level: int, own: Load, now_s: float, deadline_s: float | None) -> float:
        max_wait_s = self._limits.queue.of(level).max_wait_s
        return self._backlog.check((level, False), own, now_s, deadline_s, max_wait_s)

    def put(self, request: Request) -> float | None:
        """Admit all items of a request, or leave the queue as it was.

        Returns when the request is refused if nothing of it runs by then; None: never. Raises
        `Overloaded`, or `InvalidArgument` for a request that no empty queue could hold.
        """
        limits = self._limits
        for item in request.items:
            assert item.num_rows <= limits.max_rows, "no batch could hold it"
            assert item.num_rows * item.num_tokens <= limits.max_tokens, "no batch could hold it"
        num_rows, num_tokens = request.num_rows, request.num_tokens
        if num_rows > limits.max_waiting_rows or num_tokens > limits.max_waiting_tokens:
            raise InvalidArgument(
                f"the request has {num_rows} rows and {num_tokens} tokens, the queue takes at most "
                f"{limits.max_waiting_rows} rows and {limits.max_waiting_tokens} tokens"
            )
        level = limits.queue.level_of(request.priority)
        self._check_counts(level, Size(num_rows, num_tokens))
        queued_s = request.timings.queued_s
        expected_s = self._check_wait(
            level, self._load_of(request.items), queued_s, request.deadline_s
        )
        request.timings.expected_s = expected_s
        request.timings.trust_factor = self._backlog.trust.factor
        policy = limits.queue.of(level)
        timeout_s = policy.timeout_of(request.timeout_s)
        times_out_s = inf if timeout_s is None else queued_s + timeout_s
        place = _Place((level, False), len(request.items), times_out_s)
        self._lanes.setdefault(place.lane, {}).update(dict.fromkeys(request.items))
        for item in request.items:
            self._backlog.add(place.lane, item)
        self._places[request] = place
        self._num_by_level[level] += 1
        self.num_rows += num_rows
        self.num_tokens += num_tokens
        self._next_due_s = min(self._next_due_s, _due_s(request, place))
        return None if times_out_s == inf or policy.is_delaying else times_out_s

    def drop(self, request: Request) -> None:
        """Remove what still waits of a request."""
        if request in self._places:
            self._remove(self._waiting_items(request))

    def due_s(self) -> float | None:
        """When the next batch may run: a past time for at once, None while nothing waits."""
        if not self._lanes:
            return None
        queued_s = min(next(iter(lane)).request.timings.queued_s for lane in self._lanes.values())
        if self._limits.max_delay_s <= 0:
            return queued_s
        batch = self._best_batch()
        enough = min(self._limits.preferred_rows, default=self._limits.max_rows)
        is_enough = sum(item.num_rows for item in batch) >= enough
        is_closed = len(batch) < len(self)  # what comes would not join it either
        return queued_s if is_enough or is_closed else queued_s + self._limits.max_delay_s

    def take(self, now_s: float) -> tuple[list[Item], dict[Request, AttendantError]]:
        """Remove and return items to run now, and what `expire` and `give_up` return."""
        late = self.expire(now_s) | self.give_up(now_s)
        batch = self._best_batch() if self._lanes else []
        self._remove(batch)
        return batch, late

    def expire(self, now_s: float) -> dict[Request, AttendantError]:
        """Remove late requests and return them with their errors; move delayed ones to the end."""
        late: dict[Request, AttendantError] = {}
        if now_s < self._next_due_s:
            return late
        for request, place in self._places.items():
            if request.deadline_s is not None and request.deadline_s <= now_s:
                late[request] = DeadlineExceeded("Deadline Exceeded")
            elif place.times_out_s <= now_s and self._limits.queue.of(place.lane[0]).is_delaying:
                self._put_behind(request, place)
            elif place.times_out_s <= now_s:
                late[request] = TimedOut("Request timeout expired")
        for request in late:
            self.drop(request)
        self._next_due_s = min(
            (_due_s(request, place) for request, place in self._places.items()), default=inf
        )
        return late

    def begin(self, batch: list[Item], now_s: float) -> PacedRun:
        """A batch that was taken runs; say `end` of what this returns when its run is free again.

        So the queue learns how long runs take. Without, it refuses nothing for its wait.
        """
        return self._backlog.begin(batch, now_s)

    def end(self, run: PacedRun, now_s: float) -> None:
        self._backlog.pace.end(run, now_s)

    def answered(self, request: Request, now_s: float) -> None:
        """A request's client has its answer; infinity: its deadline passed without one.

        Called where requests are put in, on the event loop: sending takes its time too.
        """
        timings, trust = request.timings, self._backlog.trust
        if timings.expected_s and request.deadline_s is not None:
            # What took longer than expected and is in time does no harm.
            left_s = request.deadline_s - timings.queued_s
            is_late = now_s - timings.queued_s > left_s * (1 - SPARE_SHARE)
            trust.add(is_late=is_late, admitted_with=timings.trust_factor)
        elif timings.expected_s:
            trust.answered(timings.expected_s, now_s - timings.queued_s)

    def give_up(self, now_s: float) -> dict[Request, AttendantError]:
        """Remove and return requests that cannot meet their deadlines any more, with their errors.

        Where that is all that waits, one is left: prices that are too high must be found out.
        """
        backlog = self._backlog
        if not self._lanes or not backlog.pace.is_known:
            return {}
        everything = backlog.ahead_of(max(self._lanes.keys()))
        if now_s + backlog.expect(everything, now_s).ends_s <= self._next_due_s:
            return {}
        late: dict[Request, AttendantError] = {}
        load = Load()
        in_order = chain.from_iterable(self._lanes[lane] for lane in sorted(self._lanes))
        first = islice(in_order, self._limits.max_candidates)
        for request in dict.fromkeys(item.request for item in first):
            own = self._load_of(self._waiting_items(request))
            own.add(load)
            ends_s = backlog.expect(own, now_s).ends_s
            left_s = inf if request.deadline_s is None else request.deadline_s - now_s
            if ends_s > left_s and len(late) + 1 < len(self._places):
                late[request] = TooLate(ends_s, left_s)
            else:
                load = own
        for request in late:
            self.drop(request)
        return late

    def _waiting_items(self, request: Request) -> list[Item]:
        lane = self._lanes[self._places[request].lane]
        return [item for item in request.items if item in lane]

    def _load_of(self, items: Iterable[Item]) -> Load:
        load = Load()
        for item in items:
            load.add(self._backlog.load_of(item))
        return load

    def take_all(self) -> list[Request]:
        """Remove and return every waiting request."""
        requests = list(self._places)
        for request in requests:
            self.drop(request)
        return requests

    def _put_behind(self, request: Request, place: _Place) -> None:
        """It has waited too long, and may: after all of its level that have not."""
        lane, (level, _) = self._lanes[place.lane], place.lane
        for item in request.items:
            self._leave_lane(place.lane, lane, item)
            self._backlog.add((level, True), item)
        place.lane, place.times_out_s = (level, True), inf
        self._lanes.setdefault(place.lane, {}).update(dict.fromkeys(request.items))

    def _leave_lane(self, key: Lane, lane: dict[Item, None], item: Item) -> None:
        del lane[item]
        self._backlog.remove(key, item)
        if not lane:
            del self._lanes[key]
            self._backlog.forget(key)

    def _remove(self, items: Iterable[Item]) -> None:
        for item in items:
            request, place = item.request, self._places[item.request]
            self._leave_lane(place.lane, self._lanes[place.lane], item)
            self.num_rows -= item.num_rows
            self.num_tokens -= item.num_rows * item.num_tokens
            place.num_items -= 1
            place.times_out_s = inf  # it has begun
            if not place.num_items:
                del self._places[request]
                self._num_by_level[place.lane[0]] -= 1

    def _best_batch(self) -> list[Item]:
        first, *others = (self._lanes[key] for key in sorted(self._lanes))
        oldest, most = next(iter(first)), self._limits.max_candidates
        alike = self._alike(first, oldest)
        batch = alike
        if len(alike) > 1:
            alike.sort(key=lambda item: item.num_tokens)
            batch = alike[self._most_efficient_window(alike, alike.index(oldest))]
        if others:
            company = islice(chain.from_iterable(others), max(0, most - len(first)))
            batch = self._with_company(batch, company)
        return self._trim_to_preferred(batch, oldest)

    def _alike(self, lane: Iterable[Item], oldest: Item) -> list[Item]:
        """The first items that may run with the oldest, up to what a few batches compute.

        Were it more, batches of one length after the other would begin many requests of several
        texts before they complete any.
        """
        alike, amount, most = [], 0.0, MAX_BATCHES_AHEAD * self._limits.max_cost
        for item in islice(lane, self._limits.max_candidates):
            if item.shape_key == oldest.shape_key:
                alike.append(item)
            if most < inf and len(item.request.items) > 1:
                amount += self._backlog.load_of(item).amount
                if amount > most:
                    break
        return alike

    def _with_company(self, batch: list[Item], others: Iterable[Item]) -> list[Item]:
        """Fill a batch, sorted by length, with items of lower levels that make it no longer.

        One joins where its padding costs no more than a run of its own would.
        """
        limits, cost, longest = self._limits, self._limits.cost, batch[-1]
        num_rows = sum(item.num_rows for item in batch)
        filled = list(batch)
        for item in others:
            own = (item.num_rows, item.num_tokens, item.num_rows * item.num_tokens)
            padded = (item.num_rows, longest.num_tokens, own[-1])
            rows = num_rows + item.num_rows
            if (
                item.shape_key == longest.shape_key
                and item.num_tokens <= longest.num_tokens
                and cost.work(*padded) - cost.work(*own) <= cost.overhead
                and rows <= limits.max_rows
                and rows * longest.num_tokens <= limits.max_tokens
            ):
                filled.append(item)
                num_rows = rows
        return filled

    def _most_efficient_window(self, items: list[Item], anchor: int) -> slice:
        """The run of `items` (sorted by length) around `anchor` that wastes least.

        Every window [low, high] with low <= anchor <= high is scored at once:
        rows of `score` are lows, columns are highs.
        """
        limits, cost = self._limits, self._limits.cost
        if self._all_fit_alike(items):
            return slice(len(items))
        rows = np.fromiter((item.num_rows for item in items), np.int64, len(items))
        lengths = np.fromiter((item.num_tokens for item in items), np.int64, len(items))
        before = [
            np.concatenate(([0], np.cumsum(values)))
            for values in (rows, rows * lengths, cost.work(rows, lengths, rows * lengths))
        ]
        low, high = np.arange(anchor + 1)[:, None], np.arange(anchor, len(items))[None, :]
        num_rows, num_tokens, useful = (sums[high + 1] - sums[low] for sums in before)
        work = cost.work(num_rows, lengths[high], num_tokens)
        saved = (high - low) * cost.overhead  # runs that need not be
        is_worse = work - useful > saved + ROUNDING
        is_too_large = (num_rows > limits.max_rows) | (num_rows * lengths[high] > limits.max_tokens)
        is_too_large |= (cost.overhead + work > limits.max_cost) & (low < high)
        paid = np.maximum(cost.overhead + work, 1)  # no rows, no overhead: 0 / 0
        score = np.where(is_worse | is_too_large, -1.0, useful / paid)
        best_low, best_high = np.unravel_index(np.argmax(score), score.shape)
        return slice(int(best_low), anchor + int(best_high) + 1)

    def _all_fit_alike(self, items: list[Item]) -> bool:
        """Whether items, sorted by length, are of one length and fit a batch: none pads another.

        That is always so of small tensors, for which scoring would take longer than their run.
        """
        limits, cost, length = self._limits, self._limits.cost, items[-1].num_tokens
        if items[0].num_tokens != length or cost.overhead <= 0:
            return False
        num_rows = sum([item.num_rows for item in items])
        num_tokens = num_rows * length
        price = cost.overhead + cost.work(num_rows, length, num_tokens)
        return (
            num_rows <= limits.max_rows
            and num_tokens <= limits.max_tokens
            and price <= limits.max_cost
        )

    def _trim_to_preferred(self, batch: list[Item], oldest: Item) -> list[Item]:
        """Cut a batch to the largest preferred size it reaches, keeping its oldest item."""
        num_rows = sum(item.num_rows for item in batch)
        target = max((size for size in self._limits.preferred_rows if size <= num_rows), default=0)
        if not target:
            return batch
        room = target - oldest.num_rows
        kept = [oldest]
        for item in batch:
            if item is not oldest and item.num_rows <= room:
                kept.append(item)
                room -= item.num_rows
        return kept if room == 0 else batch


def _due_s(request: Request, place: _Place) -> float:
    return min(place.times_out_s, inf if request.deadline_s is None else request.deadline_s)
