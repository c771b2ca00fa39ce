"""Random lives of the queue: whatever arrives, leaves, fails or expires, the promises hold.

Each seed draws its own limits and its own traffic. A step is one event: a request
arrives, a client leaves, a batch is taken and succeeds or fails, time passes.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest

from service.batching import BatchLimits, BatchQueue
from service.errors import InvalidArgument, Overloaded
from service.request import Item, Request, Timings
from tests.fakes import up_to

SEEDS = range(300)
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

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        pick = self.random.integers
        self.limits = BatchLimits(
            max_rows=int(pick(4, 20)),
            max_tokens=int(pick(120, 600)),
            queue=up_to(int(pick(5, 40))),
            max_waiting_tokens=int(pick(200, 3_000)),
            overhead_tokens=int(pick(0, 100)),
            max_candidates=int(pick(1, 30)),
            max_delay_s=float(self.random.choice([0.0, 1.0])),
            preferred_rows=tuple(sorted(set(pick(1, 5, size=int(pick(0, 3))).tolist()))),
        )
        self.queue = BatchQueue(self.limits)

    def step(self) -> None:
        event = self.random.random()
        if event < 0.6:
            self.arrive()
        elif event < 0.7:
            self.leave()
        elif event < 0.8:
            self.now_s += float(self.random.exponential(2.0))
        else:
            self.take()
        self.recount()

    def arrive(self) -> None:
        """Up to 5 items of up to 4 rows and 30 tokens: at most 120, so that every batch holds."""
        has_deadline = self.random.random() < 0.3
        deadline_s = self.now_s + float(self.random.exponential(5.0)) if has_deadline else None
        request = Request(Timings(self.now_s, queued_s=self.now_s), deadline_s)
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
            self.queue.put(request)
        except (InvalidArgument, Overloaded):
            self.num_refused += 1
            assert (repr(self.queue), len(self.queue)) == before
            return
        self.admitted.append(request)
        self.left[request] = len(request.items)
        for item in request.items:
            # Every take removes the oldest item, so whoever has k items before it is in
            # the (k + 1)-th take from now at the latest.
            self.waiting[item] = self.num_takes + len(self.waiting) + 1

    def leave(self) -> None:
        alive = [request for request in self.admitted if not self.ended[request]]
        if alive:
            request = alive[self.random.integers(len(alive))]
            self.queue.drop(request)
            self.end(request)

    def take(self) -> None:
        oldest = next(iter(self.waiting), None)
        batch, expired = self.queue.take(self.now_s)
        for request in expired:
            assert request.deadline_s is not None
            assert request.deadline_s <= self.now_s
            self.end(request)
        self.num_takes += 1
        if not batch:
            assert not self.waiting
            return
        assert oldest in batch or (oldest is not None and oldest.request in expired)
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
        for item in batch:
            assert not self.ended[item.request]
            assert self.num_takes <= self.waiting.pop(item), "waited longer than the bound"

    def end(self, request: Request) -> None:
        self.ended[request] += 1
        for item in request.items:
            self.waiting.pop(item, None)

    def recount(self) -> None:
        """The queue's running numbers against a count of what should wait."""
        assert len(self.queue) == len(self.waiting)
        assert self.queue.num_requests == len({item.request for item in self.waiting})
        assert self.queue.num_tokens == sum(i.num_rows * i.num_tokens for i in self.waiting)
        assert self.queue.num_requests <= self.limits.queue.default.max_requests
        assert (self.queue.due_s() is None) == (not self.waiting)

    def drain(self) -> None:
        while self.waiting:
            self.take()
            self.recount()


@pytest.mark.parametrize("first", range(0, len(SEEDS), 50))
def test_every_admitted_request_ends_once(first: int) -> None:
    """300 seeds of 150 events; then the queue is drained.

    Along the way: no batch exceeds rows or B * S, an item with k items before it at its
    arrival is in one of the next k + 1 takes, and the counters equal a recount.
    """
    for seed in SEEDS[first : first + 50]:
        simulation = Simulation(seed)
        for _ in range(NUM_STEPS):
            simulation.step()
        simulation.drain()
        assert len(simulation.admitted) > 10
        assert set(simulation.ended.values()) == {1}
        assert set(simulation.ended) == set(simulation.admitted)


def test_the_simulation_meets_refusals_and_deadlines() -> None:
    """Seeds that never saw one would prove nothing about it."""
    simulations = [Simulation(seed) for seed in SEEDS[:30]]
    for simulation in simulations:
        for _ in range(NUM_STEPS):
            simulation.step()
    assert sum(simulation.num_refused > 0 for simulation in simulations) >= 10
    assert sum(any(r.deadline_s for r in s.ended) for s in simulations) >= 10


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
