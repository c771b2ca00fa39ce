"""Loops on a clock that jumps: what a stall, slowness and a limit look like in the figures."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from loadtests.load.arrivals import constant, poisson, steady
from loadtests.load.generator import Generator, Share, arrivals_of
from loadtests.load.scenario import Load, Slo, Traffic
from loadtests.load.tally import NOT_SENT, Tally
from loadtests.load.workloads import OK, Reply, Stubs, Workload
from tests.fakes.virtual import run_virtually

Answer = Callable[[], Awaitable[Reply]]


class FakeWorkload(Workload):
    """A server of one function."""

    def __init__(self, answer: Answer, **traffic: float) -> None:
        self.traffic = Traffic(model="m", **traffic)  # type: ignore[arg-type]
        self._answer = answer

    async def ask(self, stubs: Stubs) -> Reply:
        return await self._answer()

    def _request(self, number: int) -> None: ...
    def _call(self, stubs: Stubs, request: object) -> None: ...
    async def _reply(self, call: object, request: object) -> Reply:
        raise NotImplementedError


NO_STUBS: Any = None  # fake workloads call no server


def measured(load: Load, answer: Answer, slo: Slo | None = None, **traffic: float) -> Tally:
    async def run() -> Tally:
        workload = FakeWorkload(answer, **traffic)
        generator = Generator(load, Tally(load, slo or Slo()), [workload], NO_STUBS)
        if load.arrivals == "closed":
            await generator.closed_loop()
        else:
            await generator.open_loop(arrivals_of(load, Share()))
        return generator.tally

    return run_virtually(run())


def stalling(stall_at_s: float, stall_s: float, service_s: float = 0.001) -> Answer:
    """Answers in a millisecond, but for everything that comes in the stall."""

    async def answer() -> Reply:
        now_s = asyncio.get_running_loop().time()
        if stall_at_s <= now_s < stall_at_s + stall_s:
            await asyncio.sleep(stall_at_s + stall_s - now_s)
        await asyncio.sleep(service_s)
        return Reply(OK)

    return answer


def test_a_stall_of_one_second_shows_in_the_percentiles_of_an_open_loop() -> None:
    """100 requests/s for 10 s, one of them stalled: a tenth waits up to a second, evenly spread.

    So p90 is the service alone, p95 half a second and p99 0.9 s.
    """
    load = Load(arrivals="constant", rate=100, seconds=10, warm_up_s=0)
    latency = measured(load, stalling(5.0, 1.0)).total.latency
    assert latency.count == 1_000
    assert latency.percentile_s(89.9) == pytest.approx(0.001, abs=1e-4)
    assert latency.percentile_s(95) == pytest.approx(0.5, abs=0.02)
    assert latency.percentile_s(99) == pytest.approx(0.9, abs=0.02)


def test_a_closed_loop_hides_the_same_stall() -> None:
    """Which is why it is for capacity only: one client waits, and asks nothing meanwhile."""
    load = Load(arrivals="closed", concurrency=1, seconds=10, warm_up_s=0)
    latency = measured(load, stalling(5.0, 1.0)).total.latency
    assert latency.max_s == pytest.approx(1.0, abs=0.01)
    assert latency.percentile_s(99.9) == pytest.approx(0.001, abs=1e-4)


def test_a_generator_that_stalls_charges_it_to_latency_and_says_so() -> None:
    """Half a second in which the client's own loop stands still: due requests are sent late."""
    load = Load(arrivals="constant", rate=100, seconds=2, warm_up_s=0)
    is_first = iter([True])

    async def answer() -> Reply:
        loop = asyncio.get_running_loop()
        if loop.time() > 1.0 and next(is_first, False):
            loop._now_s += 0.5  # type: ignore[attr-defined] # as blocking code would
        await asyncio.sleep(0.001)
        return Reply(OK)

    tally = measured(load, answer)
    assert tally.total.statuses[OK] == 200
    assert tally.send_lag.max_s == pytest.approx(0.49, abs=0.02)
    assert tally.total.latency.percentile_s(99) > 0.4
    assert any("were sent late" in fault for fault in tally.faults)


def test_requests_beyond_the_limit_are_not_sent_and_make_the_run_invalid() -> None:
    """100/s that take a second each need 100 in flight; 50 are allowed."""

    async def answer() -> Reply:
        await asyncio.sleep(1.0)
        return Reply(OK)

    load = Load(arrivals="constant", rate=100, seconds=4, warm_up_s=0, max_in_flight=50)
    tally = measured(load, answer)
    total = tally.total
    assert total.statuses[NOT_SENT] + total.statuses[OK] == 400
    assert total.statuses[NOT_SENT] == pytest.approx(200, abs=50)
    assert any("50 were in flight" in fault for fault in tally.faults)


def test_warming_up_is_sent_and_not_counted() -> None:
    num_asked = 0

    async def answer() -> Reply:
        nonlocal num_asked
        num_asked += 1
        # Cold at first: none of that may show.
        await asyncio.sleep(0.5 if num_asked <= 50 else 0.001)
        return Reply(OK)

    load = Load(arrivals="constant", rate=100, seconds=2, warm_up_s=1)
    tally = measured(load, answer)
    assert num_asked == 300
    assert tally.total.latency.count == 200
    assert tally.total.latency.max_s < 0.01
    assert sorted(tally.by_second) == [1, 2]


def test_rates_count_answers_that_came_in_time() -> None:
    """A server of 50/s asked 100/s: answers that come after the end are not in its rate."""
    free_at_s = 0.0

    async def answer() -> Reply:
        nonlocal free_at_s
        loop = asyncio.get_running_loop()
        free_at_s = max(free_at_s, loop.time()) + 1 / 50
        await asyncio.sleep(free_at_s - loop.time())
        return Reply(OK)

    load = Load(arrivals="constant", rate=100, seconds=4, warm_up_s=0)
    tally = measured(load, answer, Slo(latency_ms=1_000))
    assert tally.total.statuses[OK] == 400
    assert tally.num_answers_in_time == pytest.approx(200, abs=2)
    # Request k is due at k / 100 s and answered at k / 50 s: the first hundred within a second.
    assert tally.total.num_good == pytest.approx(100, abs=2)
    assert tally.good_share == pytest.approx(0.25, abs=0.01)


def test_a_request_without_an_end_is_given_up() -> None:
    async def answer() -> Reply:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    load = Load(arrivals="constant", rate=10, seconds=1, warm_up_s=0)
    tally = measured(load, answer, deadline_s=1.0)
    assert tally.total.statuses == {"FAILED": 10}
    assert tally.total.num_lost == 10


def test_a_closed_loop_keeps_so_many_in_flight() -> None:
    in_flight = most = 0

    async def answer() -> Reply:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(0.1)
        in_flight -= 1
        return Reply(OK)

    load = Load(arrivals="closed", concurrency=8, seconds=2, warm_up_s=0)
    tally = measured(load, answer)
    assert most == 8
    assert tally.num_answers_in_time / 2 == pytest.approx(80, rel=0.06)


def test_workers_share_a_load() -> None:
    load = Load(rate=90, concurrency=32, max_in_flight=100)
    parts = [Share(number, 3).part(load) for number in range(3)]
    assert sum(part.rate for part in parts) == pytest.approx(90)
    assert sum(part.concurrency for part in parts) == 32
    assert len({part.seed for part in parts}) == 3
    evenly = [arrivals_of(Load(arrivals="constant", rate=30), Share(n, 3)) for n in range(3)]
    assert [next(due) for due in evenly] == pytest.approx([0, 1 / 90, 2 / 90])


def test_arrivals_do_not_depend_on_answers() -> None:
    """The same seed gives the same load on any server."""
    load = Load(rate=50, seconds=5, warm_up_s=0, seed=3)
    expected = list(poisson(steady(50), 50, 5, random.Random(3)))
    assert list(arrivals_of(load, Share())) == expected
    assert list(constant(steady(4), 1)) == [0, 0.25, 0.5, 0.75]
