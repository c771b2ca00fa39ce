"""Random lives of the queue: whatever arrives, leaves, fails or expires, the promises hold.

Each seed draws its own limits and its own traffic. A step is one event: a request
arrives, a client leaves, a batch is taken and succeeds or fails, time passes. While it passes,
every second seed lets a timer fire whenever a request is due; for the others being late is found
out at the next take.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np
import pytest

from service.batching.limits import BatchLimits
from service.batching.queue import BatchQueue
from service.batching.request import Item, Request
from service.contract.queue_policies import QueuePolicies, QueuePolicy
from service.errors import DeadlineExceeded, InvalidArgument, Overloaded, TimedOut
from service.records import Timings
from service.runtime.cost import CostCurve
from tests.fakes.sessions import up_to

SEEDS = range(int(os.environ.get("SIMULATION_SEEDS", "300")))
NUM_STEPS = 150


@dataclass
class Simulation:
    """One queue, the requests it admitted, and a plain account of how each ended."""

    seed: int
    now_s: float = 0.0
    num_takes: int = 0
    num_refused: int = 0
    waiting: dict[Item, int] = field(default_factory=dict)  # the last take it may wait for
    ended: Counter[Request] = field(default_factory=Counter)
    admitted: list[Request] = field(default_factory=list)
    left: dict[Request, int] = field(default_factory=dict)  # items not yet computed
    times_out_s: dict[Request, float] = field(default_factory=dict)  # of those not begun
    behind: dict[Request, int] = field(default_factory=dict)  # late and waiting still: since when
    num_looks: int = 0  # how often the queue searched for late requests
    ends: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        pick = self.random.integers
        self.limits = BatchLimits(
            max_rows=int(pick(4, 20)),
            max_tokens=int(pick(120, 600)),
            queue=self.some_policies(),
            max_waiting_rows=int(pick(20, 200)),
            max_waiting_tokens=int(pick(200, 3_000)),
            cost=self.some_cost(),
            max_cost=float(pick(0, 600)) if self.random.random() < 0.5 else inf,
            max_candidates=int(pick(1, 30)),
            max_delay_s=float(self.random.choice([0.0, 1.0])),
            preferred_rows=tuple(sorted(set(pick(1, 5, size=int(pick(0, 3))).tolist()))),
        )
        self.queue = BatchQueue(self.limits)
        # Nobody overtakes, so that how long an item waits has a bound.
        self.is_in_order = self.limits.queue.num_levels == 1
        self.is_in_order &= not self.limits.queue.of(1).is_delaying

    def some_cost(self) -> CostCurve:
        overhead, padding, square = self.random.random(3) * (100, 2, 0.02)
        return CostCurve(float(overhead), float(padding), float(square))

    def some_policies(self) -> QueuePolicies:
        num_levels = int(self.random.choice([1, 1, 2, 3]))
        policies = [self.some_policy() for _ in range(num_levels + 1)]
        with_own = [level for level in range(1, num_levels + 1) if self.random.random() < 0.5]
        by_level = {level: policies[level] for level in with_own}
        default_level = int(self.random.integers(1, num_levels + 1))
        return QueuePolicies(policies[0], by_level, num_levels, default_level)

    def some_policy(self) -> QueuePolicy:
        return QueuePolicy(
            max_requests=int(self.random.integers(5, 40)),
            timeout_s=float(self.random.exponential(10.0)) if self.random.random() < 0.5 else None,
            can_override=bool(self.random.random() < 0.5),
            is_delaying=bool(self.random.random() < 0.3),
        )

    def step(self) -> None:
        event = self.random.random()
        if event < 0.6:
            self.arrive()
        elif event < 0.7:
            self.leave()
        elif event < 0.8:
            self.pass_time(float(self.random.exponential(2.0)))
        else:
            self.take()
        self.recount()

    def arrive(self) -> None:
        """Up to 5 items of up to 4 rows and 30 tokens: at most 120, so that every batch holds."""
        has_deadline = self.random.random() < 0.3
        deadline_s = self.now_s + float(self.random.exponential(5.0)) if has_deadline else None
        request = Request(
            Timings(self.now_s, queued_s=self.now_s),
            deadline_s,
            priority=int(self.random.integers(0, 5)),
            timeout_s=float(self.random.exponential(5.0)) if self.random.random() < 0.3 else None,
        )
        request.items = tuple(
            Item(
                request,
                {},
                int(self.random.integers(0, 5)),
                int(self.random.integers(1, 31)),
                str(self.random.choice(["a", "a", "b"])),
            )
            for _ in range(self.random.integers(1, 6))
        )
        before = repr(self.queue), len(self.queue)
        try:
            times_out_s = self.queue.put(request)
        except (InvalidArgument, Overloaded):
            self.num_refused += 1
            assert (repr(self.queue), len(self.queue)) == before
            return
        self.admitted.append(request)
        self.left[request] = len(request.items)
        policy = self.limits.queue.of(self.level_of(request))
        timeout_s = policy.timeout_of(request.timeout_s)
        self.times_out_s[request] = inf if timeout_s is None else self.now_s + timeout_s
        rejected_s = None if policy.is_delaying else self.times_out_s[request]
        assert times_out_s == (None if rejected_s == inf else rejected_s)
        for item in request.items:
            # Every take removes the oldest item, so an item with k items before it is in
            # the (k + 1)-th take from now at the latest.
            self.waiting[item] = self.num_takes + len(self.waiting) + 1

    def level_of(self, request: Request) -> int:
        return self.limits.queue.level_of(request.priority)

    def place_of(self, item: Item) -> tuple[int, int]:
        """Level, and since when it is behind: the lowest goes first."""
        return self.level_of(item.request), self.behind.get(item.request, 0)

    def pass_time(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.seed % 2:
            alive = {item.request for item in self.waiting}
            due_s = min((self.due_s(request) for request in alive), default=inf)
            if due_s > until_s:
                break
            self.now_s = due_s
            late = self.queue.expire(self.now_s)
            assert late.keys() == {r for r in alive if self.due_s(r) == due_s} - self.put_behind()
            self.end_late(late)
        self.now_s = until_s

    def due_s(self, request: Request) -> float:
        """When it is late, or goes behind."""
        return min(
            inf if request.deadline_s is None else request.deadline_s, self.times_out_s[request]
        )

    def put_behind(self) -> set[Request]:
        """Note the request that the queue has just put behind the others of its level."""
        self.num_looks += 1
        late = {
            request
            for request in {item.request for item in self.waiting}
            if self.times_out_s[request] <= self.now_s
            and self.limits.queue.of(self.level_of(request)).is_delaying
            and (request.deadline_s is None or request.deadline_s > self.now_s)
        }
        for request in late:
            self.behind[request], self.times_out_s[request] = self.num_looks, inf
        return late

    def end_late(self, late: Mapping[Request, Exception]) -> None:
        """Each for its reason, and at its time where timers fire."""
        for request, error in late.items():
            due_s = request.deadline_s if isinstance(error, DeadlineExceeded) else None
            if isinstance(error, TimedOut):
                due_s = self.times_out_s[request]
                assert not self.limits.queue.of(self.level_of(request)).is_delaying
                assert self.left[request] == len(request.items), "it had begun"
            assert due_s is not None
            assert due_s <= self.now_s
            assert due_s == self.now_s or not self.seed % 2, "later than due"
            self.ends[type(error).__name__] += 1
            self.end(request)

    def leave(self) -> None:
        alive = [request for request in self.admitted if not self.ended[request]]
        if alive:
            request = alive[self.random.integers(len(alive))]
            self.queue.drop(request)
            self.end(request)

    def take(self) -> None:
        batch, late = self.queue.take(self.now_s)
        self.put_behind()
        self.end_late(late)
        self.num_takes += 1
        if not batch:
            assert not self.waiting
            return
        for request in {item.request for item in self.waiting}:
            assert self.due_s(request) > self.now_s, "late, and nobody said so"
        assert min(self.waiting, key=self.place_of) in batch
        self.check_batch(batch)
        if self.random.random() < 0.1:  # the session raised: culprits fail whole
            for request in {item.request: None for item in batch}:
                self.queue.drop(request)
                self.end(request)
            return
        for request, count in Counter(item.request for item in batch).items():
            self.left[request] -= count
            if not self.left[request]:
                self.end(request)

    def check_batch(self, batch: list[Item]) -> None:
        rows = sum(item.num_rows for item in batch)
        assert rows <= self.limits.max_rows
        assert rows * max(item.num_tokens for item in batch) <= self.limits.max_tokens
        assert len({item.shape_key for item in batch}) == 1
        assert len(set(batch)) == len(batch) <= self.limits.max_candidates
        first = min(map(self.place_of, batch))
        is_first = [
            (place[0], place[1] > 0) == (first[0], first[1] > 0)
            for place in map(self.place_of, batch)
        ]
        longest = max(i.num_tokens for i, leads in zip(batch, is_first, strict=True) if leads)
        if not self.limits.preferred_rows:  # being cut to one may take the longest away
            assert all(item.num_tokens <= longest for item in batch), "company made it longer"
        for item in batch:
            assert not self.ended[item.request]
            bound = self.waiting.pop(item)
            assert self.num_takes <= bound or not self.is_in_order, "waited longer than the bound"
        for item in batch:
            self.times_out_s[item.request] = inf  # it has begun

    def end(self, request: Request) -> None:
        self.ended[request] += 1
        for item in request.items:
            self.waiting.pop(item, None)

    def recount(self) -> None:
        """The queue's running numbers against a count of what should wait."""
        assert len(self.queue) == len(self.waiting)
        assert self.queue.num_requests == len({item.request for item in self.waiting})
        assert self.queue.num_tokens == sum(i.num_rows * i.num_tokens for i in self.waiting)
        assert self.queue.num_rows == sum(item.num_rows for item in self.waiting)
        assert self.queue.num_rows <= self.limits.max_waiting_rows
        by_level = Counter(map(self.level_of, {item.request for item in self.waiting}))
        for level, count in by_level.items():
            assert count <= self.limits.queue.of(level).max_requests
        assert (self.queue.due_s() is None) == (not self.waiting)

    def drain(self) -> None:
        while self.waiting:
            self.take()
            self.recount()


@pytest.mark.parametrize("first", range(0, len(SEEDS), 50))
def test_every_admitted_request_ends_once(first: int) -> None:
    """300 seeds of 150 events; then the queue is drained.

    Along the way: no batch exceeds rows or B * S; it holds the oldest item of the first level, and
    none of another that makes it longer; nobody waits beyond a timeout that rejects; the counters
    equal a recount. Where there is one level and nobody is put behind, an item with k items
    before it at its arrival is in one of the next k + 1 takes.
    """
    for seed in SEEDS[first : first + 50]:
        simulation = Simulation(seed)
        for _ in range(NUM_STEPS):
            simulation.step()
        simulation.drain()
        assert len(simulation.admitted) > 10
        assert set(simulation.ended.values()) == {1}
        assert set(simulation.ended) == set(simulation.admitted)


def test_the_simulation_meets_refusals_deadlines_and_timeouts() -> None:
    """Seeds that never saw one would prove nothing about it."""
    simulations = [Simulation(seed) for seed in SEEDS[:30]]
    for simulation in simulations:
        for _ in range(NUM_STEPS):
            simulation.step()
    assert sum(simulation.num_refused > 0 for simulation in simulations) >= 10
    assert sum(s.ends["DeadlineExceeded"] > 0 for s in simulations) >= 10
    assert sum(s.ends["TimedOut"] > 0 for s in simulations) >= 10
    assert sum(bool(s.behind) for s in simulations) >= 5
    assert sum(s.is_in_order for s in simulations) >= 5


def test_a_long_text_among_a_flood_of_short_ones_waits_for_a_bounded_number_of_batches() -> None:
    """With 5 items before it, it is in the 6th take at the latest, however many short follow."""
    limits = BatchLimits(max_rows=4, queue=up_to(10_000))
    queue = BatchQueue(limits)

    def put(length: int) -> Item:
        request = Request(Timings(0.0))
        request.items = (Item(request, {}, 1, length),)
        queue.put(request)
        return request.items[0]

    for _ in range(5):
        put(3)
    long = put(3_000)
    for _ in range(6):
        for _ in range(20):
            put(3)
        if long in queue.take(0.0)[0]:
            return
    pytest.fail("still waiting after 6 takes")
