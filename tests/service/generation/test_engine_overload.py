"""Requests that the generation engine refuses: a full queue, and answers that would be late."""

import asyncio
import time

import pytest

from service.contract.queue_policies import QueuePolicy
from service.errors import DeadlineExceeded, InvalidArgument, Overloaded, TooLate, WaitTooLong
from service.generation.inbox import QueueLimits
from service.generation.wait_estimator import MIN_STEPS
from service.runtime.pace import MIN_RUNS
from tests.fakes.generation import (
    ask,
    ask_all,
    engine_on,
    in_s,
    now,
    start,
    step_to,
    until_idle,
    within_patience,
)
from tests.fakes.sessions import FakeDecoder, greedy_text


async def test_a_prompt_that_cannot_be_computed_by_its_deadline_is_not_started() -> None:
    """It is expected to take more than 9 s, and 5 s are left; running ones are not disturbed."""
    decoder = FakeDecoder(num_slots=1)
    decoder.hold()
    async with engine_on(decoder) as engine:
        running = await start(engine, "a")
        await step_to(decoder, 1)
        for _ in range(MIN_RUNS):
            engine._estimator.read(1, 10.0)
        hopeless = await start(engine, "hello", deadline_s=time.monotonic() + 5.0)
        decoder.release()
        with pytest.raises(TooLate, match=r"^Deadline Exceeded: .* s are needed"):
            await within_patience(hopeless)
        assert (await within_patience(running)).text == greedy_text("a", 8)


async def test_a_full_engine_refuses_whom_it_would_let_wait_too_long() -> None:
    """Steps of 20 ms and 8 tokens a sequence: with one slot taken the next would wait 0.1 s."""
    decoder = FakeDecoder(num_slots=1)
    queue = QueueLimits(policy=QueuePolicy(max_wait_s=0.05))
    async with engine_on(decoder, queue=queue) as engine:
        for _ in range(MIN_STEPS):
            engine._estimator.decoded(1, 0.02, 0.02)
        decoder.hold(after=1)
        running = await start(engine, "a")
        await step_to(decoder, 2)
        with pytest.raises(WaitTooLong, match=r"^The queue is too long: the expected wait is"):
            engine.check_room()
        with pytest.raises(WaitTooLong):
            engine.generate(now("b"))
        decoder.release()
        await within_patience(running)
        assert (await ask(engine, "b")).text == greedy_text("b", 8)


async def test_an_output_that_others_would_make_late_is_refused_though_a_slot_is_free() -> None:
    """Steps of one row take 20 ms, of two 35: 30 tokens fit into 0.75 s alone, and not beside one.

    Nor are they refused where nothing runs, or where 0.5 s would be too few for them alone: then
    their stream has what is there by its deadline.
    """
    decoder = FakeDecoder(num_slots=2)
    async with engine_on(decoder) as engine:
        for _ in range(MIN_STEPS):
            engine._estimator.decoded(1, 0.02, 0.02)
        (answer,) = await ask_all(engine, now("a", max_tokens=30, deadline_s=in_s(0.75)))
        assert answer.text == greedy_text("a", 30)
        for _ in range(100):  # as fast as the fake is, it is slow again
            engine._estimator.decoded(1, 0.02, 0.02)
            engine._estimator.decoded(2, 0.035, 0.035)
        num_before = len(decoder.calls)
        decoder.hold(after=1)
        running = await start(engine, "b")
        await step_to(decoder, num_before + 2)
        with pytest.raises(WaitTooLong, match=r"^The deadline is too early: the answer is"):
            engine.generate(now("c", max_tokens=30, deadline_s=in_s(0.75)))
        hopeless = await start(engine, "c", max_tokens=30, deadline_s=in_s(0.5))
        decoder.release()
        assert (await within_patience(hopeless)).text == greedy_text("c", 30)
        await within_patience(running)


async def test_an_output_that_was_cut_off_makes_the_next_expectations_longer() -> None:
    """Two are expected in time; a step goes on past the deadline of one. The other is in time."""
    decoder = FakeDecoder(num_slots=3)
    async with engine_on(decoder) as engine:
        for _ in range(MIN_STEPS):
            engine._estimator.decoded(1, 0.001, 0.001)
        decoder.hold(after=1)
        running = await start(engine, "a")
        await step_to(decoder, 2)
        tasks = [
            await start(engine, "b", max_tokens=4, deadline_s=in_s(seconds))
            for seconds in (0.1, 60.0)
        ]
        with pytest.raises(DeadlineExceeded):
            await within_patience(tasks[0])
        late_factor = engine._estimator.end_trust.factor
        assert late_factor > 1
        decoder.release()
        await within_patience(asyncio.gather(running, tasks[1]))
        await until_idle(engine)
        assert 1 < engine._estimator.end_trust.factor < late_factor


async def test_the_queue_is_bounded_by_tokens_of_prompts_too() -> None:
    """30 may wait: 20 and 10 do, one more does not; two samples of a prompt count twice."""
    decoder = FakeDecoder(num_slots=1)
    decoder.hold()
    async with engine_on(decoder, queue=QueueLimits(max_tokens=30)) as engine:
        tasks = [await start(engine, "a")]
        await step_to(decoder, 1)
        tasks.append(await start(engine, "b" * 20))
        with pytest.raises(Overloaded):
            engine.generate(now("c" * 6, n=2, temperature=1.0))
        tasks.append(await start(engine, "c" * 10))
        with pytest.raises(Overloaded):
            engine.check_room()
        decoder.release()
        await within_patience(asyncio.gather(*tasks))
        engine.check_room()


@pytest.mark.parametrize("asked", [{"n": 5}, {"n": 2}])
async def test_what_no_empty_queue_could_hold_is_wrong_not_early(asked: dict[str, int]) -> None:
    """Four sequences and 30 tokens may wait: not 5 of 1 token, nor 2 of 20."""
    async with engine_on(FakeDecoder(), queue=QueueLimits(4, 30)) as engine:
        with pytest.raises(InvalidArgument, match="the queue takes at most 4 sequences and 30"):
            engine.generate(now("a" * (20 if asked["n"] == 2 else 1), temperature=1.0, **asked))
