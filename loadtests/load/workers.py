"""`Workers`: processes that send shares of a load at the same time; their tallies are added.

Each has an interpreter and an event loop of its own: one of them sends some thousand requests a
second. They are started once and used for every run of a test.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Self

from loadtests.load.generator import GRACE_S, Share, run_load
from loadtests.load.scenario import Scenario
from loadtests.load.tally import Tally
from loadtests.load.workloads import Stubs, open_channel

START_DELAY_S = 0.3  # from the order to the first request: for connecting, and making requests
START_LIMIT_S = 60.0
POLL_S = 0.1


class WorkerError(Exception):
    """A worker's error, with its own text."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run, as a worker gets it. `start_s` is `time.monotonic()`, one clock for the machine."""

    scenario: Scenario
    share: Share
    addresses: tuple[str, ...]
    start_s: float


def work(pipe: Connection) -> None:
    """A worker's life: orders in, tallies or errors out, until the pipe closes."""
    pipe.send("ready")
    while True:
        try:
            order = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(asyncio.run(_carry_out(order)))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


async def _carry_out(order: Order) -> Tally:
    async with open_channel(order.addresses) as channel:
        return await run_load(order.scenario, order.share, Stubs(channel), order.start_s)


class Workers:
    """Worker processes; they are gone after the block."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")  # grpc does not survive a fork
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> Self:
        for pipe in self._pipes:
            self._receive(pipe, time.monotonic() + START_LIMIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.join(timeout=GRACE_S)
            process.kill()

    def run(
        self,
        scenario: Scenario,
        addresses: Sequence[str],
        on_progress: Callable[[float], None] = lambda _: None,
    ) -> Tally:
        """One run; `on_progress` hears how many seconds of it have passed."""
        start_s = time.monotonic() + START_DELAY_S
        for number, pipe in enumerate(self._pipes):
            share = Share(number, len(self._pipes))
            pipe.send(Order(scenario, share, tuple(addresses), start_s))
        deadline_s = max(traffic.deadline_s for traffic in scenario.traffic)
        limit_s = start_s + scenario.load.end_s + deadline_s + 2 * GRACE_S
        tally = Tally(scenario.load, scenario.slo)
        for pipe in self._pipes:
            while not pipe.poll(POLL_S) and time.monotonic() < limit_s:
                on_progress(max(0.0, time.monotonic() - start_s))
            tally.add(self._receive(pipe, limit_s))
        on_progress(scenario.load.end_s)
        return tally

    @staticmethod
    def _receive(pipe: Connection, limit_s: float) -> Tally:
        try:
            if not pipe.poll(max(0.0, limit_s - time.monotonic())):
                raise WorkerError("a worker did not answer in time")
            found = pipe.recv()
        except EOFError:
            raise WorkerError("a worker process ended") from None
        if isinstance(found, str) and found != "ready":
            raise WorkerError(found)
        return found  # type: ignore[no-any-return]
