"""Send requests when they are due, whatever became of earlier ones, and tally what comes of them.

An open loop: a server that stalls gets the same requests as one that does not, as from users who
know nothing of each other. The closed loop, with clients that each wait for an answer, is
for finding out what a server can do at most. One event loop; every duration is on its clock.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from loadtests.load.arrivals import Rate, bursts, constant, poisson, steady
from loadtests.load.scenario import Load, Scenario
from loadtests.load.tally import Sample, Tally
from loadtests.load.workloads import FAILED, Reply, Stubs, Workload, workloads_of

Ask: TypeAlias = Callable[[], Awaitable[Reply]]
GRACE_S = 5.0  # beyond its deadline; then a request is given up


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the load that a worker sends."""

    number: int = 0
    of: int = 1

    def part(self, load: Load) -> Load:
        """A worker's own load. Poisson arrivals of several add up to Poisson arrivals."""
        clients = load.concurrency // self.of + (self.number < load.concurrency % self.of)
        return replace(
            load,
            rate=load.rate / self.of,
            concurrency=clients,
            max_in_flight=max(1, load.max_in_flight // self.of),
            seed=load.seed * 64 + self.number,
        )


def arrivals_of(load: Load, share: Share, rate: Rate | None = None) -> Iterator[float]:
    """When this worker's requests are due; `rate` instead of the load's where one is given."""
    peak = load.rate * load.burst_factor
    if rate is None and load.burst_factor > 1:
        rate = bursts(load.rate, load.burst_factor, load.burst_every_s, load.burst_s)
    rate = rate or steady(load.rate)
    if load.arrivals == "constant":
        return constant(rate, load.end_s, share.number / share.of)
    return poisson(rate, peak, load.end_s, random.Random(load.seed))


async def run_load(
    scenario: Scenario,
    share: Share,
    stubs: Stubs,
    start_s: float | None = None,
) -> Tally:
    """Send a worker's share; `start_s` on the event loop's clock is the same for all workers."""
    load = share.part(scenario.load)
    workloads = await workloads_of(scenario, stubs, load.seed)
    generator = Generator(load, Tally(load, scenario.slo), workloads, stubs, start_s)
    if load.arrivals == "closed":
        await generator.closed_loop()
    else:
        await generator.open_loop(arrivals_of(load, share))
    return generator.tally


class Generator:
    """One event loop that sends; at most `max_in_flight` requests are open."""

    def __init__(
        self,
        load: Load,
        tally: Tally,
        workloads: list[Workload],
        stubs: Stubs,
        start_s: float | None = None,
    ) -> None:
        self.tally = tally
        self._load = load
        self._workloads = workloads
        self._weights = [workload.traffic.weight for workload in workloads]
        self._stubs = stubs
        self._loop = asyncio.get_running_loop()
        self.start_s = start_s if start_s is not None else self._loop.time()
        self.random = random.Random(load.seed)

    async def open_loop(self, due: Iterator[float]) -> None:
        """Start one request per arrival, each at its time."""
        open_tasks: set[asyncio.Task[None]] = set()
        for due_s in due:
            # Also where it is late, so that answers are read meanwhile.
            await asyncio.sleep(max(0.0, due_s - self._now_s()))
            workload = self._choose()
            if len(open_tasks) >= self._load.max_in_flight:
                self.tally.record_unsent(workload.traffic, due_s)
                continue
            task = asyncio.create_task(self._one(workload, due_s))
            open_tasks.add(task)
            task.add_done_callback(open_tasks.discard)
        if open_tasks:
            await asyncio.wait(open_tasks)

    async def closed_loop(self) -> None:
        """Clients that each send when they have been answered."""
        await asyncio.sleep(max(0.0, -self._now_s()))
        await asyncio.gather(*(self._client() for _ in range(self._load.concurrency)))

    async def _client(self) -> None:
        while (now_s := self._now_s()) < self._load.end_s:
            await self._one(self._choose(), now_s)

    async def _one(self, workload: Workload, due_s: float) -> None:
        sent_s = self._now_s()
        try:
            async with asyncio.timeout(workload.traffic.deadline_s + GRACE_S):
                reply = await workload.ask(self._stubs)
        except TimeoutError:
            reply = Reply(FAILED)
        ended_s = self._now_s()
        chunks = [(at_s - self.start_s, count) for at_s, count in reply.chunks]
        sample = Sample(due_s, sent_s, ended_s, Reply(reply.status, chunks))
        self.tally.record(workload.traffic, sample)

    def _choose(self) -> Workload:
        return self.random.choices(self._workloads, self._weights)[0]

    def _now_s(self) -> float:
        """Seconds from the start of the load."""
        return self._loop.time() - self.start_s
