"""Waiting items by priority level, and the next batch of them under a token budget.

Pure policy: no clock, thread, array or metric. The engine holds the lock and
passes the time in, so any decision made here can be replayed in a unit test.

`next_batch.py` chooses the items of a batch, which belong to the first level that waits; others
fill it up. Within a level, requests that are past their timeout and may still wait come last.
Background requests have the last level. They run only while nothing else waits, and may take
half of the room, so that they are no reason for which others are refused.

Waiting requests have a price in seconds (`service/runtime/pace.py`). A request that would wait
longer than its level allows, or be answered after its deadline, is refused on arrival; an admitted
one that can no longer be done in time ends before any more of it is computed.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import inf

from service.batching.backlog import Backlog, Lane, Load, RunBounds
from service.batching.limits import BatchLimits
from service.batching.next_batch import NextBatch
from service.batching.request import Item, Request
from service.contract.queue_policies import BACKGROUND
from service.errors import (
    AttendantError,
    DeadlineExceeded,
    InvalidArgument,
    Overloaded,
    TimedOut,
    TooLate,
)
from service.runtime.pace import SPARE_SHARE, PacedRun


@dataclass(frozen=True, slots=True)
class Size:
    """Number of rows and tokens of a request."""

    num_rows: int = 0
    num_tokens: int = 0


NOTHING = Size()
BACKGROUND_ROOM = 2  # background requests may fill the waiting rows and tokens divided by this


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
        self._next_batch = NextBatch(limits)
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

        Half an empty queue has room for any size: `put` knows the real one, and larger requests
        come in parts.
        """
        level = self._limits.queue.level_of(priority)
        room = Size(
            min(size.num_rows, self._limits.part_rows),
            min(size.num_tokens, self._limits.part_tokens),
        )
        self._check_counts(level, room)
        load = Load(size.num_rows, size.num_tokens, size.num_tokens)
        self._check_wait(level, load, now_s, deadline_s)

    def _check_counts(self, level: int, size: Size) -> None:
        limits = self._limits
        is_background = limits.queue.is_background(level)
        share = BACKGROUND_ROOM if is_background and self._num_by_level.get(level, 0) else 1
        if (
            self._num_by_level.get(level, 0) >= limits.queue.of(level).max_requests
            or self.num_rows + size.num_rows > limits.max_waiting_rows // share
            or self.num_tokens + size.num_tokens > limits.max_waiting_tokens // share
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
                f"{limits.max_waiting_rows} rows (--max-queue-rows) and "
                f"{limits.max_waiting_tokens} tokens (--max-queue-tokens)"
            )
        level = limits.queue.level_of(request.priority)
        self._check_counts(level, Size(num_rows, num_tokens))
        queued_s = request.timings.queued_s
        expected_s = self._check_wait(
            level, self._load_of(request.items), queued_s, request.deadline_s
        )
        request.timings.expected_s = expected_s
        request.timings.trust_factor = self._backlog.trust.factor
        request.timings.usual_factor = self._backlog.usual.factor
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
        batch = self._next_of_lanes()
        enough = min(self._limits.preferred_rows, default=self._limits.max_rows)
        is_enough = sum(item.num_rows for item in batch) >= enough
        is_closed = len(batch) < len(self)  # what comes would not join it either
        return queued_s if is_enough or is_closed else queued_s + self._limits.max_delay_s

    def take(self, now_s: float) -> tuple[list[Item], dict[Request, AttendantError]]:
        """Remove and return items to run now, and what `expire` and `give_up` return."""
        late = self.expire(now_s) | self.give_up(now_s)
        batch = self._next_of_lanes() if self._lanes else []
        self._remove(batch)
        return batch, late

    def _next_of_lanes(self) -> list[Item]:
        """The items that would run next; something waits."""
        first = min(self._lanes)
        if self.is_background(first[0]):
            oldest = next(iter(self._lanes[first])).request
            return self._next_batch.of_background(self._waiting_items(oldest))
        lanes = [lane for lane in sorted(self._lanes) if not self.is_background(lane[0])]
        return self._next_batch.of([self._lanes[lane] for lane in lanes])

    def is_background(self, level: int) -> bool:
        return self._limits.queue.is_background(level)

    def has_others(self) -> bool:
        """Whether a request waits that is no background request."""
        return bool(self._lanes) and not self.is_background(min(self._lanes)[0])

    def are_background(self, items: Iterable[Item]) -> bool:
        """Whether items that were taken are of background requests."""
        return all(item.request.priority == BACKGROUND for item in items)

    def put_back(self, items: Sequence[Item]) -> None:
        """Let items of one background request, which were taken, wait again as the oldest.

        What they were admitted with has not changed: nothing is refused here.
        """
        request = items[0].request
        level = self._limits.queue.level_of(request.priority)
        place = self._places.get(request)
        if place is None:
            place = self._places[request] = _Place((level, False), 0, inf)
            self._num_by_level[level] += 1
        waiting = self._lanes.pop(place.lane, {})
        self._lanes[place.lane] = {**dict.fromkeys(items), **waiting}
        for item in items:
            self._backlog.add(place.lane, item)
            self.num_rows += item.num_rows
            self.num_tokens += item.num_rows * item.num_tokens
        place.num_items += len(items)
        self._next_due_s = min(self._next_due_s, _due_s(request, place))

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
        if timings.expected_s:
            took_s, usual = now_s - timings.queued_s, self._backlog.usual
            is_long = took_s > usual.factor * timings.expected_s
            usual.add(is_late=is_long, admitted_with=timings.usual_factor)
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
        first = islice(chain.from_iterable(self._in_order()), self._limits.max_candidates)
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

    def _in_order(self) -> list[dict[Item, None]]:
        """The lanes, those that go first before others."""
        return [self._lanes[lane] for lane in sorted(self._lanes)]

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
        """Put a request behind its level once its timeout has passed, where it may wait on."""
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


def _due_s(request: Request, place: _Place) -> float:
    return min(place.times_out_s, inf if request.deadline_s is None else request.deadline_s)
