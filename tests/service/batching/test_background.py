"""Background requests: after all others, out of their way, and in batches of their own."""

import asyncio
from typing import Any

import numpy as np
import pytest

from service.batching.engine import MAX_STOPS
from service.batching.limits import BatchLimits
from service.batching.queue import BatchQueue
from service.batching.request import Request
from service.contract.queue_policies import BACKGROUND, QueuePolicies
from service.errors import Overloaded, Unavailable
from tests.fakes.generation import until, within_patience
from tests.fakes.sessions import PATIENCE_S, FakeSession, doubling_session, tensor_request
from tests.service.batching.test_engine import engine_on, start
from tests.service.batching.test_queue import lengths_of, make, queue_of

ONE_AT_A_TIME: dict[str, Any] = {"max_background_tokens": 1}


def background(*values: float, lengths: list[int] | None = None) -> Request:
    request = tensor_request(*values, lengths=lengths)
    request.priority = BACKGROUND
    return request


def test_background_waits_until_no_level_has_a_request() -> None:
    """The last of three levels goes first, though it came last."""
    requests = [make(10, priority=BACKGROUND), make(11, priority=3), make(12, priority=2)]
    queue = queue_of(requests, queue=QueuePolicies(num_levels=3, default_level=2))
    taken = [lengths_of(queue.take(0.0)[0]) for _ in range(2)]
    assert taken == [[11, 12], [10]]


def test_background_fills_up_no_batch_of_others() -> None:
    queue = queue_of([make(*[5] * 60, priority=BACKGROUND), make(5)])
    batch, _ = queue.take(0.0)
    assert [item.request.priority for item in batch] == [0]


def test_a_background_batch_has_texts_of_one_request_and_the_same_ones_whatever_waits() -> None:
    """Three of 10 tokens and two of 30, 60 a run: whether or not others of its kind wait."""
    texts = (30, 10, 10, 30, 10)

    def batches(*others: Request) -> list[list[int]]:
        first = make(*texts, priority=BACKGROUND)
        queue = queue_of([first, *others], max_background_tokens=60)
        taken = []
        while first in queue._places:
            batch, _ = queue.take(0.0)
            assert {item.request for item in batch} == {first}
            taken.append(lengths_of(batch))
        return taken

    alone = batches()
    assert alone == [[10, 10, 10], [30, 30]]
    assert batches(make(10, 10, 20, priority=BACKGROUND)) == alone


def test_a_text_longer_than_the_bound_is_a_batch_by_itself() -> None:
    queue = queue_of([make(700, 5, priority=BACKGROUND)], max_background_tokens=512)
    assert [lengths_of(queue.take(0.0)[0]) for _ in range(2)] == [[5], [700]]


def test_what_is_put_back_goes_first_and_counts_as_before() -> None:
    first, second = make(4, 5, priority=BACKGROUND), make(4, priority=BACKGROUND)
    queue = queue_of([first, second])
    before = (len(queue), queue.num_requests, queue.num_rows, queue.num_tokens)
    batch, _ = queue.take(0.0)
    queue.put_back(batch)
    assert (len(queue), queue.num_requests, queue.num_rows, queue.num_tokens) == before
    assert queue.take(0.0)[0] == batch
    queue.drop(second)
    assert (len(queue), queue.num_rows, queue.num_tokens) == (0, 0, 0)


def test_background_leaves_half_of_the_room_to_others() -> None:
    """Of 100 tokens two requests of 25 fit; a third is refused, and others are not."""
    queue = BatchQueue(BatchLimits(max_waiting_tokens=100))
    for _ in range(2):
        queue.put(make(25, priority=BACKGROUND))
    with pytest.raises(Overloaded):
        queue.put(make(25, priority=BACKGROUND))
    queue.put(make(50))


async def test_a_run_is_stopped_for_another_request_and_repeated() -> None:
    session = doubling_session()
    async with engine_on(session) as engine:
        session.hold()
        bulk = await start(engine, background(1.0, 2.0))
        await asyncio.to_thread(session.wait_for_runs, 1)
        other = await start(engine, tensor_request(7.0))
        await asyncio.to_thread(session.wait_for_runs, 2)  # the stopped one is not waited for
        assert session.num_stopped == 1
        session.release()
        assert await values_of(other) == [14.0]
        assert await values_of(bulk) == [2.0, 4.0]
    assert [batch["x"][:, 0].tolist() for batch in session.batches] == [[1, 2], [7], [1, 2]]


async def test_no_background_run_shares_the_processors_with_another_request() -> None:
    """Both of two runs are stopped, and neither begins anew before the other request is done."""
    sessions = doubling_session(), doubling_session()
    async with engine_on(*sessions, **ONE_AT_A_TIME) as engine:
        for session in sessions:
            session.hold()
        bulk = await start(engine, background(1.0, 2.0))
        await until(lambda: all(session.batches for session in sessions))
        other = await start(engine, tensor_request(7.0))
        await until(lambda: sum(len(session.batches) for session in sessions) == 3)
        await until(lambda: [session.num_stopped for session in sessions] == [1, 1])
        await asyncio.sleep(0.05)
        assert sum(len(session.batches) for session in sessions) == 3, "it waits"
        for session in sessions:
            session.release()
        assert await values_of(other) == [14.0]
        assert await values_of(bulk) == [2.0, 4.0]


async def test_after_four_runs_that_were_stopped_the_next_one_is_not() -> None:
    session = doubling_session()
    async with engine_on(session) as engine:
        session.hold()
        bulk = await start(engine, background(1.0))
        await asyncio.to_thread(session.wait_for_runs, 1)
        engine._num_stops = MAX_STOPS
        other = await start(engine, tensor_request(7.0))
        session.release()
        assert await values_of(bulk) == [2.0]
        assert await values_of(other) == [14.0]
        assert (session.num_stopped, engine._num_stops) == (0, 0)


async def test_a_stopped_run_of_a_closing_engine_is_refused() -> None:
    session = doubling_session()
    async with engine_on(session) as engine:
        session.hold()
        bulk = await start(engine, background(1.0))
        await asyncio.to_thread(session.wait_for_runs, 1)
        with engine._changed:  # the engine closes after the run was stopped, before it has heard
            engine._make_way()
            engine._is_closing = True
            engine._changed.notify_all()
        with pytest.raises(Unavailable):
            await within_patience(bulk)


async def test_every_request_of_a_mixed_load_is_answered_with_its_own() -> None:
    session: FakeSession = doubling_session()
    generator = np.random.default_rng(3)
    async with engine_on(session, **ONE_AT_A_TIME) as engine:
        tasks = []
        for number in range(200):
            request = tensor_request(number) if number % 3 else background(number, number + 0.5)
            tasks.append(asyncio.create_task(engine.run(request)))
            if generator.random() < 0.3:
                await asyncio.sleep(0.001)
        for number, task in enumerate(tasks):
            expected = [2 * number] if number % 3 else [2 * number, 2 * number + 1]
            assert await values_of(task) == expected


async def values_of(task: "asyncio.Task[list[list[np.ndarray]]]") -> list[float]:
    outputs = await asyncio.wait_for(task, PATIENCE_S)
    return [float(output[0][0, 0]) for output in outputs]
