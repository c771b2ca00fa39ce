"""Clients of the generation engine that leave, are late, or read slowly."""

import asyncio
import time

import pytest

from service.contract.queue_policies import QueuePolicy
from service.errors import DeadlineExceeded, ModelFailed
from service.generation.engine import GenerationEngine
from service.generation.inbox import QueueLimits
from service.records import FinishReason
from tests.fakes.generation import (
    Answer,
    RecordingObserver,
    ask,
    ask_all,
    engine_on,
    now,
    read,
    rows_of,
    sleep_past,
    start,
    step_to,
    until,
    until_idle,
    within_patience,
)
from tests.fakes.sessions import PATIENCE_S, FakeDecoder, greedy_ids, greedy_text


@pytest.mark.parametrize("way", ["break", "cancel"])
async def test_a_client_that_leaves_frees_its_slot_within_one_step(way: str) -> None:
    """Two decode in run 3; one leaves; run 4 computes the other alone, and it is not disturbed."""
    decoder, observer = FakeDecoder(), RecordingObserver()
    decoder.hold()
    leaving = asyncio.Event()

    async def leaver(engine: GenerationEngine) -> None:
        async with engine.generate(now("leaver", max_tokens=30)):
            await leaving.wait()

    async with engine_on(decoder, observer=observer) as engine:
        task = asyncio.create_task(leaver(engine))
        await asyncio.sleep(0)
        await step_to(decoder, 1)
        other = await start(engine, "stays", max_tokens=12)
        await step_to(decoder, 3)
        assert rows_of(decoder)[2] == (1, 1)
        if way == "break":
            leaving.set()
        else:
            task.cancel()
        await asyncio.wait([task])
        await step_to(decoder, 4)
        assert rows_of(decoder)[3] == (1,)
        assert engine.num_running == 1
        decoder.release()
        answer = await within_patience(other)
    assert answer.text == greedy_text("stays", 12)
    ends = {bytes(s.request.prompt_ids.tolist()): s.finish_reason for s in observer.ended}
    assert ends == {b"leaver": FinishReason.ABORT, b"stays": FinishReason.LENGTH}


async def test_a_client_that_leaves_takes_all_its_samples_along() -> None:
    decoder, observer = FakeDecoder(), RecordingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        async with engine.generate(now("a", n=8, temperature=1.0, max_tokens=50)):
            await step_to(decoder, 4)
            assert engine.num_running > 1
        decoder.release()
        await until_idle(engine)
    assert [sequence.finish_reason for sequence in observer.ended] == [FinishReason.ABORT] * 8


async def test_leaving_after_the_end_changes_nothing() -> None:
    observer = RecordingObserver()
    async with engine_on(FakeDecoder(), observer=observer) as engine:
        async with engine.generate(now("a", max_tokens=3)) as generation:
            await until(lambda: generation.is_complete)
        await ask(engine, "b")
    assert [s.finish_reason for s in observer.ended] == [FinishReason.LENGTH] * 2


async def test_a_deadline_that_passes_amid_a_text_ends_it_and_disturbs_no_other() -> None:
    """Both decode in run 3, which outlasts the deadline of one: run 4 is the other's alone."""
    decoder, observer = FakeDecoder(), RecordingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        other = await start(engine, "stays", max_tokens=12)
        await step_to(decoder, 1)
        deadline_s = time.monotonic() + 0.5
        late = await start(engine, "late", max_tokens=50, deadline_s=deadline_s)
        await step_to(decoder, 3)
        assert rows_of(decoder)[2] == (1, 1)
        await sleep_past(deadline_s)
        await step_to(decoder, 4)
        with pytest.raises(DeadlineExceeded):
            await within_patience(late)
        decoder.release()
        assert (await within_patience(other)).text == greedy_text("stays", 12)
    assert rows_of(decoder)[3] == (1,)
    assert [sequence.finish_reason for sequence in observer.ended].count(FinishReason.ABORT) == 1


async def test_each_deadline_counts_though_an_earlier_one_ended_in_time() -> None:
    """Four: the first is met, the third passes before the second, the last is far away."""
    decoder = FakeDecoder()
    decoder.hold()
    async with engine_on(decoder) as engine:
        met = await start(engine, "a", max_tokens=1, deadline_s=time.monotonic() + PATIENCE_S)
        deadline_s = time.monotonic() + 0.5
        second = await start(engine, "b", max_tokens=50, deadline_s=deadline_s + 0.05)
        third = await start(engine, "c", max_tokens=50, deadline_s=deadline_s)
        last = await start(engine, "d", max_tokens=60, deadline_s=time.monotonic() + PATIENCE_S)
        await step_to(decoder, 3)
        assert (await within_patience(met)).text == greedy_text("a", 1)
        await sleep_past(deadline_s)
        await step_to(decoder, 4)
        with pytest.raises(DeadlineExceeded):
            await within_patience(third)
        await sleep_past(deadline_s + 0.05)
        decoder.release()
        with pytest.raises(DeadlineExceeded):
            await within_patience(second)
        assert (await within_patience(last)).text == greedy_text("d", 60)


async def test_samples_of_a_prompt_that_has_begun_do_not_time_out() -> None:
    """The second sample waits for the only slot, longer than the timeout, behind the first."""
    decoder = FakeDecoder(num_slots=1)
    decoder.hold()
    queue = QueueLimits(policy=QueuePolicy(timeout_s=0.02))
    async with engine_on(decoder, queue=queue) as engine:
        request = now("ab", max_tokens=3, n=2, temperature=1.0)
        asked = asyncio.create_task(ask_all(engine, request))
        await step_to(decoder, 1)
        await sleep_past(time.monotonic() + 0.04)
        decoder.release()
        answers = await within_patience(asked)
    assert [len(answer.token_ids) for answer in answers] == [3, 3]


async def test_the_engine_knows_since_when_its_step_is_under_way() -> None:
    decoder = FakeDecoder()
    decoder.hold()
    async with engine_on(decoder) as engine:
        assert engine.running_since_s is None
        before_s = time.monotonic()
        task = await start(engine, "a", max_tokens=2)
        await step_to(decoder, 1)
        first_s = engine.running_since_s
        await step_to(decoder, 2)
        second_s = engine.running_since_s
        assert first_s is not None
        assert second_s is not None
        assert before_s <= first_s < second_s <= time.monotonic()
        decoder.release()
        await within_patience(task)
        await until(lambda: engine.running_since_s is None)


async def test_a_slow_reader_gets_what_it_missed_in_one_chunk_and_delays_no_other() -> None:
    """It takes the first of 50 tokens and rests, while another is served to the end."""
    decoder = FakeDecoder()
    decoder.hold()
    async with engine_on(decoder) as engine, engine.generate(now("slow", max_tokens=50)) as slow:
        await step_to(decoder, 2)
        chunks = aiter(slow)
        first = await within_patience(anext(chunks))
        decoder.release()
        assert (await ask(engine, "fast")).text == greedy_text("fast", 8)
        await until(lambda: slow.is_complete)
        rest = [chunk async for chunk in chunks]
    assert [len(chunk.token_ids) for chunk in (first, *rest)] == [1, 49]
    assert rest[0].is_last
    assert first.token_ids + rest[0].token_ids == greedy_ids(b"slow", 50)


async def test_a_reader_that_keeps_up_gets_a_chunk_per_token() -> None:
    """Five runs: each begins before the token of the one before it is read, and is held there."""
    decoder = FakeDecoder()
    decoder.hold()
    request = now("a", max_tokens=5)
    async with engine_on(decoder) as engine, engine.generate(request) as generation:
        chunks, found = aiter(generation), []
        for number in range(2, 7):
            if number <= 5:
                await step_to(decoder, number)
            else:
                decoder.release()
            found.append(await within_patience(anext(chunks)))
    assert [chunk.token_ids for chunk in found] == [[token] for token in greedy_ids(b"a", 5)]
    assert [chunk.is_last for chunk in found] == [False] * 4 + [True]


async def test_a_reader_that_pauses_loses_no_chunk() -> None:
    """It breaks off after one of two samples' chunks, and reads on."""
    async with engine_on(FakeDecoder()) as engine:
        request = now("a", n=2, temperature=1.0, top_k=1, max_tokens=4)
        async with engine.generate(request) as generation:
            await until(lambda: generation.is_complete)
            async for chunk in generation:
                answer, first = Answer(chunk.text), chunk.sequence.sample_index
                break
            answers = await within_patience(read(generation))
    assert answer.text == greedy_text("a", 4)
    assert answers[1 - first].text == greedy_text("a", 4)


async def test_a_failed_request_says_so_whenever_it_is_asked() -> None:
    """Twice: a second look must not wait for ever."""
    decoder = FakeDecoder()
    decoder.error = ValueError("no")
    async with engine_on(decoder) as engine, engine.generate(now("a")) as generation:
        for _ in range(2):
            with pytest.raises(ModelFailed):
                await within_patience(read(generation))
