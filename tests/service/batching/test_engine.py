"""The engine under good and bad weather: a real engine and threads, a fake session.

A batch is made to form by itself where the order matters: `max_delay_s` far away and
`max_rows` equal to the rows that shall meet.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from service.batching.collate import concatenate_rows
from service.batching.engine import BatchEngine, Outputs
from service.batching.limits import BatchLimits
from service.batching.request import Request
from service.contract.queue_policies import QueuePolicies, QueuePolicy
from service.contract.tensors import Arrays
from service.errors import AttendantError, DeadlineExceeded, DeviceFailed, ModelFailed, Unavailable
from service.records import RanBatch
from tests.fakes.generation import sleep_past, until, within_patience
from tests.fakes.sessions import (
    PATIENCE_S,
    Compute,
    FakeObserver,
    FakeSession,
    doubling_session,
    tensor_request,
)

NEVER_S = 1_000.0


@asynccontextmanager
async def engine_on(
    *sessions: FakeSession,
    observer: FakeObserver | None = None,
    on_broken: Callable[[], None] = lambda: None,
    has_rows: bool = True,
    **limits: object,
) -> AsyncIterator[BatchEngine]:
    batch_limits = BatchLimits(**limits)  # type: ignore[arg-type]
    engine = BatchEngine(
        "fake",
        sessions,
        ["y"],
        concatenate_rows,
        batch_limits,
        [observer or FakeObserver()],
        on_broken,
        has_rows=has_rows,
    )
    try:
        yield engine
    finally:
        for session in sessions:
            session.release()
        await within_patience(asyncio.to_thread(engine.close, PATIENCE_S))


async def start(engine: BatchEngine, request: Request) -> asyncio.Task[list[Outputs]]:
    """Submit a request; it is in the queue, or refused, when this returns."""
    task = asyncio.create_task(engine.run(request))
    await asyncio.sleep(0)
    return task


async def start_all(engine: BatchEngine, *values: float) -> list[asyncio.Task[list[Outputs]]]:
    """A request for each value, in their order."""
    return [await start(engine, tensor_request(value)) for value in values]


def held_session(compute: Compute | None = None) -> FakeSession:
    session = doubling_session()
    session.compute = compute or session.compute
    session.hold()
    return session


async def has_started(session: FakeSession, num_runs: int) -> None:
    await asyncio.to_thread(session.wait_for_runs, num_runs)


def values(results: list[Outputs]) -> list[float]:
    return [float(outputs[0][0, 0]) for outputs in results]


def batches_of(session: FakeSession) -> list[list[float]]:
    return [batch["x"].ravel().tolist() for batch in session.batches]


async def ask(engine: BatchEngine, *numbers: float) -> list[float]:
    return values(await within_patience(engine.run(tensor_request(*numbers))))


async def test_an_answer_is_the_session_s_output_with_its_timings() -> None:
    session = doubling_session()
    async with engine_on(session) as engine:
        request = tensor_request(4.0)
        before_s = time.monotonic()
        assert values(await engine.run(request)) == [8.0]
        timings = request.timings
    assert before_s <= timings.queued_s <= timings.started_s <= timings.finished_s
    assert timings.queue_s + timings.compute_s <= time.monotonic() - before_s
    assert timings.run_s > 0


async def test_the_next_batch_forms_while_one_runs() -> None:
    session = held_session()
    async with engine_on(session) as engine:
        tasks = await start_all(engine, 1.0)
        await has_started(session, 1)
        tasks += await start_all(engine, 2.0, 3.0, 4.0)
        assert engine.num_waiting == 3
        assert engine.num_running == 1
        session.release()
        answers = await within_patience(asyncio.gather(*tasks))
    assert batches_of(session) == [[1.0], [2.0, 3.0, 4.0]]
    assert [values(answer) for answer in answers] == [[2.0], [4.0], [6.0], [8.0]]


async def test_a_delay_ends_when_the_batch_is_full() -> None:
    """A delay of 1,000 s and 3 rows at most: the third request sets the batch off."""
    session = doubling_session()
    async with engine_on(session, max_delay_s=NEVER_S, max_rows=3) as engine:
        tasks = await start_all(engine, 1.0, 2.0, 3.0)
        await within_patience(asyncio.gather(*tasks))
    assert batches_of(session) == [[1.0, 2.0, 3.0]]


async def test_a_delay_that_passes_sends_what_is_there() -> None:
    """A delay of 20 ms: one request alone of 64 rows runs, and not before."""
    async with engine_on(doubling_session(), max_delay_s=0.02) as engine:
        request = tensor_request(1.0)
        await within_patience(engine.run(request))
    assert request.timings.queue_s >= 0.02


async def test_one_cancelled_client_does_not_disturb_its_batch() -> None:
    session = held_session()
    async with engine_on(session, max_delay_s=NEVER_S, max_rows=3) as engine:
        tasks = await start_all(engine, 1.0, 2.0, 3.0)
        await has_started(session, 1)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        session.release()
        first, last = await within_patience(asyncio.gather(tasks[0], tasks[2]))
        assert (values(first), values(last)) == ([2.0], [6.0])
        assert engine.num_running == 0
    assert tasks[1].cancelled()


async def test_a_client_that_leaves_between_its_batches_is_forgotten() -> None:
    """Its first item ran, its second waits behind another's batch; nothing of it remains."""
    session = held_session()
    async with engine_on(session, max_rows=2) as engine:
        opener = await start(engine, tensor_request(1.0))
        await has_started(session, 1)
        other = await start(engine, tensor_request(2.0, 3.0, lengths=[5, 900]))
        leaver = await start(engine, tensor_request(4.0, 5.0, lengths=[5, 5]))
        session.hold(after=1)
        await has_started(session, 3)
        assert batches_of(session) == [[1.0], [2.0, 4.0], [3.0]]
        leaver.cancel()
        await asyncio.wait([leaver])
        session.release()
        await within_patience(asyncio.gather(opener, other))
        assert engine.num_running == engine.num_waiting == 0
    assert len(session.batches) == 3


async def test_a_run_whose_clients_have_all_left_is_stopped() -> None:
    """Two share a run: one leaves, and it goes on; the other's deadline passes, and it ends."""
    session = held_session()
    async with engine_on(session, max_delay_s=NEVER_S, max_rows=2) as engine:
        leaver = await start(engine, tensor_request(1.0))
        late = await start(engine, tensor_request(2.0, deadline_s=time.monotonic() + 0.1))
        await has_started(session, 1)
        leaver.cancel()
        await asyncio.wait([leaver])
        assert engine.running_since_s is not None
        assert session.num_stopped == 0
        with pytest.raises(DeadlineExceeded):
            await within_patience(late)
        assert engine.num_running == 0
        await until(lambda: engine.running_since_s is None)
        assert session.num_stopped == 1
    assert batches_of(session) == [[1.0, 2.0]]


async def test_stopping_one_run_leaves_the_other_alone() -> None:
    session = held_session()
    async with engine_on(session, session, max_rows=1) as engine:
        tasks = await start_all(engine, 1.0, 2.0)
        await has_started(session, 2)
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
        await until(lambda: session.num_stopped == 1)
        session.release()
        assert values(await within_patience(tasks[1])) == [4.0]


async def test_a_failed_batch_is_retried_without_clients_that_left() -> None:
    """Three share a run that will fail; while it does the first leaves: two runs follow."""
    session = held_session(refuse_negative)
    async with engine_on(session, max_delay_s=NEVER_S, max_rows=3) as engine:
        tasks = await start_all(engine, 1.0, -1.0, 3.0)
        await has_started(session, 1)
        tasks[0].cancel()
        await asyncio.wait([tasks[0]])
        session.release()
        _, failed, last = await within_patience(asyncio.gather(*tasks, return_exceptions=True))
        assert isinstance(failed, ModelFailed)
        assert not isinstance(last, BaseException)
        assert values(last) == [6.0]
    assert batches_of(session) == [[1.0, -1.0, 3.0], [-1.0], [3.0]]


async def test_the_engine_knows_since_when_its_oldest_run_is_under_way() -> None:
    sessions = held_session(), held_session()
    async with engine_on(*sessions, max_rows=1) as engine:
        assert engine.running_since_s is None
        before_s = time.monotonic()
        first = await start(engine, tensor_request(1.0))
        await until(lambda: engine.running_since_s is not None)
        between_s = time.monotonic()
        second = await start(engine, tensor_request(2.0))
        for session in sessions:
            await has_started(session, 1)
        assert engine.running_since_s is not None
        assert before_s <= engine.running_since_s <= between_s
        for session in sessions:
            session.release()
        await within_patience(asyncio.gather(first, second))
        assert engine.running_since_s is None


def timing_out(timeout_s: float, **policy: bool) -> QueuePolicies:
    return QueuePolicies(QueuePolicy(timeout_s=timeout_s, **policy))


async def test_moments_that_no_clock_reaches_do_not_end_the_engine() -> None:
    """Threads cannot wait for ever; deadlines, delays and timeouts of clients may be that late."""
    aeons_s = 1e13
    session = doubling_session()
    late = timing_out(aeons_s)
    async with engine_on(session, max_rows=2, max_delay_s=aeons_s, queue=late) as engine:
        first = await start(engine, tensor_request(1.0, deadline_s=aeons_s))
        await sleep_past(time.monotonic() + 0.02)  # the engine looks, and waits for company
        second = await start(engine, tensor_request(2.0))
        answers = [values(await within_patience(task)) for task in (first, second)]
    assert answers == [[2.0], [4.0]]


async def test_a_request_that_may_wait_longer_than_its_timeout_goes_last() -> None:
    session = held_session()
    queue = timing_out(0.05, can_override=True, is_delaying=True)
    async with engine_on(session, queue=queue, max_rows=1) as engine:
        tasks = await start_all(engine, 1.0)
        await has_started(session, 1)
        hasty = tensor_request(2.0)
        hasty.timeout_s = 0.001
        tasks += [await start(engine, hasty), await start(engine, tensor_request(3.0))]
        await sleep_past(hasty.timings.queued_s + 0.001)
        session.release()
        await within_patience(asyncio.gather(*tasks))
    assert batches_of(session) == [[1.0], [3.0], [2.0]]


async def test_urgent_requests_run_first() -> None:
    session = held_session()
    queue = QueuePolicies(num_levels=3, default_level=2)
    async with engine_on(session, queue=queue, max_rows=1) as engine:
        tasks = [await start(engine, tensor_request(0.0))]
        await has_started(session, 1)
        for value, priority in ((3.0, 3), (2.0, 0), (1.0, 1), (2.5, 4)):
            request = tensor_request(value)
            request.priority = priority
            tasks.append(await start(engine, request))
        session.release()
        await within_patience(asyncio.gather(*tasks))
    assert batches_of(session) == [[0.0], [1.0], [2.0], [2.5], [3.0]]


async def test_a_lost_device_ends_the_engine_without_trying_again() -> None:
    """Two share the run that finds out; one waits. Nothing else is run, and once it is said."""
    session = held_session()
    session.error = DeviceFailed("CUDA failure 700: an illegal memory access was encountered")
    told: list[str] = []
    async with engine_on(
        session, max_delay_s=NEVER_S, max_rows=2, on_broken=lambda: told.append("broken")
    ) as engine:
        tasks = await start_all(engine, 1.0, 2.0)
        await has_started(session, 1)
        tasks.append(await start(engine, tensor_request(3.0)))
        session.release()
        *ran, waited = await within_patience(asyncio.gather(*tasks, return_exceptions=True))
        assert [type(error) for error in ran] == [DeviceFailed] * 2
        assert isinstance(waited, Unavailable)
        await until(lambda: told == ["broken"])
        with pytest.raises(Unavailable):
            await engine.run(tensor_request(4.0))
    assert batches_of(session) == [[1.0, 2.0]]
    assert told == ["broken"]


async def test_an_engine_thread_that_fails_ends_its_engine_and_says_so() -> None:
    class BadObserver(FakeObserver):
        def batch_ran(self, batch: RanBatch) -> None:
            raise RuntimeError("our own mistake")

    told: list[str] = []
    async with engine_on(
        doubling_session(), observer=BadObserver(), on_broken=lambda: told.append("broken")
    ) as engine:
        with pytest.raises(ModelFailed, match="the engine failed, see the server's log"):
            await ask(engine, 1.0)
        await until(lambda: told == ["broken"])
        with pytest.raises(Unavailable):
            await engine.run(tensor_request(2.0))


def refuse_negative(inputs: Arrays) -> dict[str, np.ndarray]:
    if (inputs["x"] < 0).any():
        raise ValueError("negative")
    return {"y": inputs["x"] * 2}


def two_rows_for_negative(inputs: Arrays) -> dict[str, np.ndarray]:
    x = inputs["x"]
    return {"y": np.concatenate([x * 2, x[x < 0][:, None]])}


def no_rows_for_negative(inputs: Arrays) -> dict[str, np.ndarray]:
    return {"y": inputs["x"][inputs["x"] >= 0][:, None] * 2}


def no_array_for_negative(inputs: Arrays) -> dict[str, Any]:
    return {"y": None if (inputs["x"] < 0).any() else inputs["x"] * 2}


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (refuse_negative, "^ValueError: negative$"),
        (two_rows_for_negative, ""),
        (no_rows_for_negative, ""),
        (no_array_for_negative, ""),
    ],
)
async def test_a_failing_row_fails_alone(compute: Compute, message: str) -> None:
    """Three in one batch; the second raises or spoils the output's shape: each runs by itself."""
    session, observer = doubling_session(), FakeObserver()
    session.compute = compute
    async with engine_on(session, observer=observer, max_delay_s=NEVER_S, max_rows=3) as engine:
        first, failed, last = await start_all(engine, 1.0, -1.0, 3.0)
        with pytest.raises(ModelFailed, match=message):
            await within_patience(failed)
        assert values(await within_patience(first)) == [2.0]
        assert values(await within_patience(last)) == [6.0]
        assert engine.num_running == 0
    assert batches_of(session) == [[1.0, -1.0, 3.0], [1.0], [-1.0], [3.0]]
    assert [batch.num_rows for batch in observer.batches] == [1, 1]  # runs that gave an answer


async def test_a_request_with_a_failing_item_fails_whole_and_once() -> None:
    """Its other items neither run alone nor wait any more."""
    session = doubling_session()
    session.compute = refuse_negative
    async with engine_on(session, max_delay_s=NEVER_S, max_rows=3) as engine:
        with pytest.raises(ModelFailed, match="negative"):
            await within_patience(engine.run(tensor_request(-1.0, 2.0, 3.0, 4.0, 5.0)))
        assert engine.num_waiting == engine.num_running == 0
    assert batches_of(session) == [[-1.0, 2.0, 3.0], [-1.0]]


@pytest.mark.parametrize("num_requests", [1, 3])
@pytest.mark.parametrize("change", [lambda y: y[1:], lambda y: np.concatenate([y, y]), np.sum])
async def test_an_output_with_the_wrong_number_of_rows_is_a_model_failure(
    num_requests: int, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Fewer rows, more rows, none at all: no request gets another's rows."""
    session = doubling_session()
    session.compute = lambda inputs: {"y": np.asarray(change(inputs["x"]))}
    async with engine_on(session, max_delay_s=NEVER_S, max_rows=num_requests) as engine:
        tasks = [await start(engine, tensor_request(1.0)) for _ in range(num_requests)]
        answers = await within_patience(asyncio.gather(*tasks, return_exceptions=True))
    for answer in answers:
        assert isinstance(answer, ModelFailed)
        assert "output 'y' has shape" in str(answer)


async def test_without_a_batch_axis_outputs_keep_the_shape_they_have() -> None:
    session = doubling_session()
    session.compute = lambda _: {"y": np.arange(6.0).reshape(2, 3)}
    async with engine_on(session, has_rows=False, max_rows=1) as engine:
        requests = [tensor_request(1.0), tensor_request(2.0)]
        answers = await within_patience(asyncio.gather(*map(engine.run, requests)))
    assert [outputs[0].shape for (outputs,) in answers] == [(2, 3), (2, 3)]


async def test_several_items_are_answered_once_in_order() -> None:
    """Five items under two rows: three batches, one answer."""
    session = doubling_session()
    async with engine_on(session, max_rows=2) as engine:
        assert await ask(engine, 1.0, 2.0, 3.0, 4.0, 5.0) == [2.0, 4.0, 6.0, 8.0, 10.0]
    assert sorted(map(len, batches_of(session))) == [1, 2, 2]


async def test_timings_of_several_batches_are_summed() -> None:
    session, observer = doubling_session(), FakeObserver()
    request = tensor_request(1.0, 2.0, 3.0)
    async with engine_on(session, observer=observer, max_rows=1) as engine:
        await within_patience(engine.run(request))
    assert len(observer.batches) == 3
    assert request.timings.run_s == pytest.approx(sum(batch.run_s for batch in observer.batches))


async def test_two_sessions_run_at_once() -> None:
    sessions = held_session(), held_session()
    async with engine_on(*sessions, max_rows=1) as engine:
        tasks = await start_all(engine, 1.0, 2.0)
        for session in sessions:
            await has_started(session, 1)
        assert engine.num_running == 2
        for session in sessions:
            session.release()
        answers = await within_patience(asyncio.gather(*tasks))
    assert [values(answer) for answer in answers] == [[2.0], [4.0]]


async def test_closing_answers_what_runs_and_refuses_what_waits() -> None:
    session = held_session()
    async with engine_on(session) as engine:
        running = await start(engine, tensor_request(1.0))
        await has_started(session, 1)
        waiting = await start_all(engine, 2.0, 3.0)
        closing = asyncio.create_task(asyncio.to_thread(engine.close, PATIENCE_S))
        for task in waiting:
            with pytest.raises(Unavailable):
                await within_patience(task)
        with pytest.raises(Unavailable, match="stopped accepting"):
            await engine.run(tensor_request(4.0))
        assert not closing.done()
        session.release()
        assert values(await within_patience(running)) == [2.0]
        await within_patience(closing)
    assert batches_of(session) == [[1.0]]
    assert "fake-0" not in {thread.name for thread in threading.enumerate()}


async def test_closing_stops_what_still_runs_when_its_time_is_over() -> None:
    session = held_session()
    async with engine_on(session) as engine:
        running = await start(engine, tensor_request(1.0))
        await has_started(session, 1)
        await within_patience(asyncio.to_thread(engine.close, 0.01))
        assert session.num_stopped == 1
        assert "fake-0" not in {thread.name for thread in threading.enumerate()}
        with pytest.raises(Unavailable, match=r"^Server is stopping$"):
            await within_patience(running)


async def test_closing_an_idle_engine_ends_its_threads() -> None:
    async with engine_on(doubling_session(), doubling_session()) as engine:
        assert await ask(engine, 1.0) == [2.0]
    assert not any(thread.name.startswith("fake-") for thread in threading.enumerate())


@pytest.mark.parametrize("seed", range(4))
async def test_under_stress_every_caller_gets_its_own_rows_and_only_those(seed: int) -> None:
    """2,400 requests of 1 to 5 unique numbers, 2 sessions, 3 levels of priority.

    Some leave, expire, wait too long, fail or overload.
    """
    random = np.random.default_rng(seed)
    sessions = [doubling_session(), doubling_session()]
    for session in sessions:
        session.compute = refuse_negative
    counts: dict[str, int] = {}
    queue = QueuePolicies(QueuePolicy(60, can_override=True), num_levels=3, default_level=2)
    async with engine_on(*sessions, max_rows=8, max_tokens=400, queue=queue) as engine:

        async def client(number: int) -> None:
            numbers = [float(number * 5 + index) for index in range(random.integers(1, 6))]
            fates = ["stay", "leave", "expire", "hurry", "fail"]
            fate = random.choice(fates, p=[0.6, 0.1, 0.1, 0.1, 0.1])
            if fate == "fail":
                numbers[-1] = -1.0
            lengths = random.integers(1, 50, size=len(numbers)).tolist()
            deadline_s = time.monotonic() + random.exponential(0.005) if fate == "expire" else None
            request = tensor_request(*numbers, lengths=lengths, deadline_s=deadline_s)
            request.priority = int(random.integers(0, 4))
            request.timeout_s = random.exponential(0.005) if fate == "hurry" else None
            task = await start(engine, request)
            if fate == "leave":
                await asyncio.sleep(random.exponential(0.002))
                task.cancel()
            try:
                answer = values(await within_patience(task))
            except (AttendantError, asyncio.CancelledError) as error:
                end = type(error).__name__
                expected = {
                    "leave": {"CancelledError"},
                    "expire": {"DeadlineExceeded", "TooLate", "TooEarly"},
                    "hurry": {"TimedOut"},
                    "fail": {"ModelFailed"},
                }
                assert end in {"Overloaded"} | expected.get(fate, set())
            else:
                end = "answered"
                assert fate != "fail"
                assert answer == [2 * value for value in numbers]
            counts[end] = counts.get(end, 0) + 1

        async with asyncio.TaskGroup() as group:
            for number in range(2_400):
                group.create_task(client(number))
                if number % 40 == 0:
                    await asyncio.sleep(0.002)
        assert engine.num_waiting == engine.num_running == 0
    assert sum(counts.values()) == 2_400
    assert counts["answered"] > 400, counts
    assert counts["TimedOut"] > 10, counts
