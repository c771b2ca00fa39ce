"""Claims on both engines: their clients' waits, their threads and their ends.

Each is a real engine with its threads, over a session or decoder that runs one request at a time
and is held for as long as a test needs. What only one of them does is in the tests of its room.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.batching.collate import concatenate_rows
from service.batching.engine import BatchEngine
from service.batching.limits import BatchLimits
from service.contract.queue_policies import QueuePolicies, QueuePolicy
from service.errors import (
    DeadlineExceeded,
    DeviceFailed,
    ModelFailed,
    Overloaded,
    TimedOut,
    Unavailable,
)
from service.generation.engine import MAX_FAILED_STEPS, GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.steps.scheduler import SchedulerLimits
from service.records import FinishReason
from tests.fakes import generation
from tests.fakes.generation import VOCABULARY, sleep_past, until, within_patience
from tests.fakes.sessions import (
    PATIENCE_S,
    FakeDecoder,
    FakeObserver,
    doubling_session,
    greedy_text,
    tensor_request,
)

LATE_S = 2.0  # how late a busy machine may be
PATIENT = QueuePolicy(max_wait_s=PATIENCE_S)


class Bench(ABC):
    """One engine over what it runs on, which takes one request at a time."""

    engine: BatchEngine | GenerationEngine
    device: Any  # a `FakeSession` or a `FakeDecoder`

    @abstractmethod
    def ran(self) -> list[int]:
        """The requests that ran, by their numbers."""

    @abstractmethod
    async def ask(self, number: int, **bounds: Any) -> float:
        """Have a request computed, checked, with a deadline or a timeout; its wait, in seconds."""

    async def start(self, number: int, **bounds: Any) -> asyncio.Task[float]:
        """Ask in the background; it is in the queue, or refused, when this returns."""
        task = asyncio.create_task(self.ask(number, **bounds))
        await asyncio.sleep(0)
        return task

    async def start_held(self, number: int, **bounds: Any) -> asyncio.Task[float]:
        """A request whose run has begun, and ends when the device is released."""
        self.device.hold()
        task = await self.start(number, **bounds)
        await asyncio.to_thread(self.device.wait_for_runs, 1)
        return task


class BatchBench(Bench):
    """Batches of one row."""

    def __init__(self, policy: QueuePolicy, on_broken: Callable[[], None]) -> None:
        self.device = doubling_session()
        limits = BatchLimits(max_rows=1, queue=QueuePolicies(policy))
        self.engine: BatchEngine = BatchEngine(
            "fake", [self.device], ["y"], concatenate_rows, limits, [FakeObserver()], on_broken
        )

    def ran(self) -> list[int]:
        return [int(value) for batch in self.device.batches for value in batch["x"].ravel()]

    async def ask(self, number: int, **bounds: Any) -> float:
        request = tensor_request(float(number), deadline_s=bounds.get("deadline_s"))
        request.timeout_s = bounds.get("timeout_s")
        outputs = await self.engine.run(request)
        assert [float(each[0][0, 0]) for each in outputs] == [2.0 * number]
        return request.timings.queue_s


class GenerationBench(Bench):
    """A decoder with one slot."""

    def __init__(self, policy: QueuePolicy, on_broken: Callable[[], None]) -> None:
        self.device = FakeDecoder(num_slots=1)
        self.observer = generation.RecordingObserver()
        self.engine: GenerationEngine = GenerationEngine(
            "fake",
            self.device,
            VOCABULARY,
            SchedulerLimits(),
            QueueLimits(policy.max_requests, policy=policy),
            [self.observer],
            on_broken,
        )

    def ran(self) -> list[int]:
        """Prompts have as many tokens as their number says, and no number is 1."""
        return [len(row) for call in self.device.calls for row in call.rows if len(row) > 1]

    async def ask(self, number: int, **bounds: Any) -> float:
        prompt = chr(ord("a") + number) * number
        request = generation.request_of(prompt, max_tokens=2, received_s=time.monotonic(), **bounds)
        async with self.engine.generate(request) as asked:
            (answer,) = await within_patience(generation.read(asked))
        assert answer.text == greedy_text(prompt, 2)
        return asked.sequences[0].timings.queue_s


@pytest.fixture(params=[BatchBench, GenerationBench], ids=["batching", "generation"])
def kind(request: pytest.FixtureRequest) -> type[Bench]:
    kind: type[Bench] = request.param
    return kind


@asynccontextmanager
async def bench_of(
    kind: Any, policy: QueuePolicy = PATIENT, on_broken: Callable[[], None] = lambda: None
) -> AsyncIterator[Bench]:
    bench: Bench = kind(policy, on_broken)
    try:
        yield bench
    finally:
        bench.device.release()
        await close(bench, PATIENCE_S)


async def close(bench: Bench, timeout_s: float) -> None:
    await within_patience(asyncio.to_thread(bench.engine.close, timeout_s))


async def is_idle(bench: Bench) -> None:
    await until(lambda: not bench.engine.num_running and not bench.engine.num_waiting)


async def ends_with(error: type[Exception], message: str, task: Awaitable[object]) -> None:
    with pytest.raises(error, match=f"^{message}$"):
        await within_patience(task)


async def test_idle_engine_adds_no_delay(kind: type[Bench]) -> None:
    """The shortest of 50 waits is under 2 ms; a timer would show in every one of them."""
    async with bench_of(kind) as bench:
        waits_s = [await bench.ask(2) for _ in range(50)]
    assert min(waits_s) < 0.002


async def test_a_client_that_leaves_the_queue_never_runs(kind: type[Bench]) -> None:
    async with bench_of(kind) as bench:
        running = await bench.start_held(2)
        waiting = await bench.start(3)
        assert bench.engine.num_waiting == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        bench.device.release()
        await within_patience(running)
        await bench.ask(4)
        assert bench.engine.num_waiting == 0
    assert bench.ran() == [2, 4]


async def test_a_deadline_that_passes_in_the_queue_ends_the_request_unrun(
    kind: type[Bench],
) -> None:
    async with bench_of(kind) as bench:
        running = await bench.start_held(2)
        deadline_s = time.monotonic() + 0.005
        late = await bench.start(3, deadline_s=deadline_s)
        await sleep_past(deadline_s)
        bench.device.release()
        await within_patience(running)
        await ends_with(DeadlineExceeded, "Deadline Exceeded", late)
        await is_idle(bench)
    assert bench.ran() == [2]


async def test_a_deadline_ends_a_request_when_it_is_due_also_one_that_runs(
    kind: type[Bench],
) -> None:
    """One runs and one waits, both for 0.1 s; the run goes on until it is released."""
    async with bench_of(kind) as bench:
        deadline_s = time.monotonic() + 0.1
        running = await bench.start_held(2, deadline_s=deadline_s)
        waiting = await bench.start(3, deadline_s=deadline_s)
        for late in (running, waiting):
            await ends_with(DeadlineExceeded, "Deadline Exceeded", late)
        assert 0 <= time.monotonic() - deadline_s < LATE_S
        bench.device.release()
        await is_idle(bench)
        await bench.ask(4)
    assert bench.ran() == [2, 4]


async def test_a_timeout_ends_a_request_that_waits_when_it_is_due_and_none_that_runs(
    kind: type[Bench],
) -> None:
    """The timeout is 0.1 s, and the first to wait has one of 0.02 s; the run takes longer."""
    policy = QueuePolicy(timeout_s=0.1, can_override=True, max_wait_s=PATIENCE_S)
    async with bench_of(kind, policy) as bench:
        running = await bench.start_held(2)
        for own_s, expected_s in ((0.02, 0.02), (None, 0.1)):
            start_s = time.monotonic()
            await ends_with(TimedOut, "Request timeout expired", bench.ask(3, timeout_s=own_s))
            assert expected_s <= time.monotonic() - start_s < expected_s + LATE_S
        assert not running.done()
        bench.device.release()
        await within_patience(running)
        await is_idle(bench)
    assert bench.ran() == [2]
    if isinstance(bench, GenerationBench):
        reasons = [sequence.finish_reason for sequence in bench.observer.ended]
        assert reasons.count(FinishReason.ABORT) == 2


async def test_overload_refuses_at_the_limit_and_recovers(kind: type[Bench]) -> None:
    """One runs, two may wait; the fourth is refused, and the next after they ran is not."""
    async with bench_of(kind, QueuePolicy(2, max_wait_s=PATIENCE_S)) as bench:
        tasks = [await bench.start_held(2)]
        bench.engine.check_room()
        tasks += [await bench.start(number) for number in (3, 4)]
        assert bench.engine.num_waiting == 2
        await ends_with(Overloaded, "Exceeds maximum queue size", bench.ask(5))
        with pytest.raises(Overloaded):
            bench.engine.check_room()
        bench.device.release()
        await within_patience(asyncio.gather(*tasks))
        assert bench.engine.num_waiting == 0
        await bench.ask(5)
    assert bench.ran() == [2, 3, 4, 5]


@pytest.mark.parametrize("error", [ValueError, RuntimeError, MemoryError, ModelFailed])
async def test_whatever_a_run_raises_the_engine_serves_on(
    kind: type[Bench], error: type[Exception]
) -> None:
    """Also where more runs fail than may fail in a row, with good ones between them."""
    async with bench_of(kind) as bench:
        for _ in range(2 * MAX_FAILED_STEPS):
            bench.device.error = error("no")
            with pytest.raises(ModelFailed, match="no"):
                await within_patience(bench.ask(2))
            bench.device.error = None
            await within_patience(bench.ask(3))


async def test_no_client_and_no_timer_is_left_when_all_have_ended(kind: type[Bench]) -> None:
    async with bench_of(kind) as bench:
        running = await bench.start_held(2)
        late = await bench.start(3, deadline_s=time.monotonic() + 0.02)
        gone = await bench.start(4, deadline_s=time.monotonic() + PATIENCE_S)
        assert len(bench.engine._crossing._timers) == 2
        gone.cancel()
        await asyncio.wait([gone])
        await ends_with(DeadlineExceeded, "Deadline Exceeded", late)
        bench.device.release()
        await within_patience(running)
        assert not bench.engine._crossing._timers
        assert not bench.engine._crossing.clients


async def test_a_lost_device_ends_the_engine_at_once_and_reports_it_once(kind: type[Bench]) -> None:
    broken: list[None] = []
    async with bench_of(kind, on_broken=lambda: broken.append(None)) as bench:
        bench.device.error = DeviceFailed("CUDA failure 700")
        await ends_with(DeviceFailed, "CUDA failure 700", bench.ask(2))
        await until(lambda: bool(broken))
        assert isinstance(bench.engine.failure, DeviceFailed)
        with pytest.raises(Unavailable):
            await bench.ask(3)
        await close(bench, PATIENCE_S)
        await asyncio.sleep(0)  # whatever else it reports
    assert bench.ran() == [2]
    assert broken == [None]


async def test_closing_waits_no_longer_than_its_timeout_for_a_run_that_never_returns(
    kind: type[Bench],
) -> None:
    async with bench_of(kind) as bench:
        bench.device.is_deaf = True
        stuck = await bench.start_held(2)
        await close(bench, 0.01)
        await ends_with(Unavailable, "Server is stopping", stuck)
        assert bench.engine.running_since_s is not None


async def test_a_closed_engine_leaves_no_thread_and_can_be_closed_again(kind: type[Bench]) -> None:
    async with bench_of(kind) as bench:
        await bench.ask(2)
        await close(bench, PATIENCE_S)
    assert not any(thread.name.startswith("fake") for thread in threading.enumerate())
