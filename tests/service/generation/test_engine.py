"""The generation engine under good and bad weather: real threads, a fake decoder.

Where an order matters the decoder is held: nothing else stops the engine's thread. A run number
counts from 1, and `step_to` lets the one before it end and waits until it has begun.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from service.contract.policies import QueuePolicy
from service.errors import (
    DeadlineExceeded,
    InvalidArgument,
    ModelFailed,
    Overloaded,
    TimedOut,
    TooLate,
    Unavailable,
    WaitTooLong,
)
from service.generation.engine import MAX_FAILED_STEPS, GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.outlook import MIN_STEPS
from service.generation.scheduler import SchedulerLimits
from service.generation.sequence import GenerationRequest
from service.generation.stream import Generation, SequenceUpdate
from service.records import FinishReason
from service.runtime.pace import MIN_RUNS
from tests.fakes.generation import (
    VOCABULARY,
    Answer,
    RecordingObserver,
    ask_all,
    engine_on,
    read,
    request_of,
    sequence_of,
    within_patience,
)
from tests.fakes.sessions import (
    END_ID,
    PATIENCE_S,
    FakeDecoder,
    greedy_ids,
    greedy_text,
    next_logits,
    prompt_ids,
)

LATE_S = 2.0  # how late a busy machine may be
BAD = ord("!")  # in a prompt: what a test's decoder refuses


async def ask(engine: GenerationEngine, prompt: str, **params: Any) -> Answer:
    """One sample's answer."""
    (answer,) = await ask_all(engine, now(prompt, **params))
    return answer


def now(prompt: str, **params: Any) -> GenerationRequest:
    return request_of(prompt, received_s=time.monotonic(), **params)


async def start(engine: GenerationEngine, prompt: str, **params: Any) -> asyncio.Task[Answer]:
    """Ask in the background; it is in the queue, or refused, when this returns."""
    task = asyncio.create_task(ask(engine, prompt, **params))
    await asyncio.sleep(0)
    return task


async def step_to(decoder: FakeDecoder, number: int) -> None:
    """Let all runs before this one end, and hold it once it has begun."""
    decoder.hold(after=number - 1 - len(decoder.calls))
    await asyncio.to_thread(decoder.wait_for_runs, number)


async def until_idle(engine: GenerationEngine) -> None:
    """Until no sequence has a slot or waits for one; the last outputs may not be delivered yet."""
    await until(lambda: not engine.num_running and not engine.num_waiting)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.001)


def rows_of(decoder: FakeDecoder) -> list[tuple[int, ...]]:
    """Of each run, the tokens by row."""
    return [tuple(len(row) for row in call.rows) for call in decoder.calls]


# --- answers --------------------------------------------------------------------------------------


async def test_an_answer_is_what_the_model_says_with_its_timings() -> None:
    async with engine_on(FakeDecoder()) as engine:
        request = now("hello", max_tokens=6)
        async with engine.generate(request) as generation:
            (answer,) = await read(generation)
        (sequence,) = generation.sequences
    assert answer.text == greedy_text("hello", 6)
    assert answer.token_ids == greedy_ids(b"hello", 6)
    t = sequence.timings
    stations = (
        t.received_s,
        t.queued_s,
        t.scheduled_s,
        t.first_token_s,
        t.last_token_s,
        t.finished_s,
    )
    assert list(stations) == sorted(stations)
    parts = t.queue_s + t.prefill_s + t.decode_s
    assert 0 < parts <= t.total_s <= time.monotonic() - t.received_s


async def test_sixty_four_at_once_each_get_the_answer_they_get_alone() -> None:
    """Prompts of 1 to 40 tokens, outputs of 1 to 20, 8 slots: one end each, and nothing left."""
    random = np.random.default_rng(0)
    observer, decoder = RecordingObserver(), FakeDecoder()
    prompts = ["".join(random.choice([*"abc"], random.integers(1, 41))) for _ in range(64)]
    counts = [int(count) for count in random.integers(1, 21, size=64)]
    async with engine_on(decoder, observer=observer, max_prefill_tokens=48) as engine:
        asked = [
            ask(engine, prompt, max_tokens=n) for prompt, n in zip(prompts, counts, strict=True)
        ]
        answers = await within_patience(asyncio.gather(*asked))
        await until_idle(engine)
    for prompt, count, answer in zip(prompts, counts, answers, strict=True):
        assert answer.token_ids == greedy_ids(prompt.encode(), count)
        assert answer.text == greedy_text(prompt, count)
    assert len(set(observer.ended)) == len(observer.ended) == 64
    assert max(step.num_rows for step in observer.steps) == 8


async def test_a_prompt_joins_those_that_decode_at_the_next_step() -> None:
    decoder = FakeDecoder()
    decoder.hold()
    async with engine_on(decoder) as engine:
        first = await start(engine, "a", max_tokens=10)
        await step_to(decoder, 3)
        second = await start(engine, "bcd", max_tokens=10)
        await step_to(decoder, 5)
        assert rows_of(decoder) == [(1,), (1,), (1,), (3,), (1, 1)]
        decoder.release()
        answers = await within_patience(asyncio.gather(first, second))
    assert [answer.text for answer in answers] == [greedy_text("a", 10), greedy_text("bcd", 10)]


# --- ends -----------------------------------------------------------------------------------------

HELLO = greedy_text("hello", 20)


@pytest.mark.parametrize(
    ("params", "text", "reason", "stop_reason"),
    [
        ({"max_tokens": 1}, HELLO[:1], FinishReason.LENGTH, ""),
        ({"max_tokens": 20}, HELLO, FinishReason.LENGTH, ""),
        ({"stop": (HELLO[4:7],)}, HELLO[:4], FinishReason.STOP, HELLO[4:7]),
        ({"stop": (HELLO[4:7], HELLO[5:7])}, HELLO[:4], FinishReason.STOP, HELLO[4:7]),
        ({"stop": (HELLO[4:7], HELLO[2:4])}, HELLO[:2], FinishReason.STOP, HELLO[2:4]),
        ({"stop": (HELLO[-2:] + "?",)}, HELLO, FinishReason.LENGTH, ""),
        (
            {"stop_token_ids": (ord(HELLO[3]),)},
            HELLO[: HELLO.index(HELLO[3])],
            FinishReason.STOP,
            str(ord(HELLO[3])),
        ),
        ({"stop": (HELLO[1:3],), "min_tokens": 2}, HELLO[:1], FinishReason.STOP, HELLO[1:3]),
        ({"stop": (HELLO[1:3],), "min_tokens": 3}, HELLO, FinishReason.LENGTH, ""),
    ],
)
async def test_why_a_sequence_ends(
    params: dict[str, Any], text: str, reason: FinishReason, stop_reason: str
) -> None:
    """After "hello", of 20 tokens; a stop string whole at the third is text where 3 are wanted."""
    async with engine_on(FakeDecoder()) as engine:
        request = now("hello", **{"max_tokens": 20} | params)
        async with engine.generate(request) as generation:
            (answer,) = await within_patience(read(generation))
    (sequence,) = generation.sequences
    assert (answer.text, sequence.finish_reason) == (text, reason)
    assert sequence.stop_reason == stop_reason


@pytest.mark.parametrize(
    ("params", "ids", "stop_reason"),
    [
        ({}, [END_ID], ""),
        ({"stop_token_ids": (END_ID,)}, [END_ID], str(END_ID)),
        ({"allowed_token_ids": (ord("."), END_ID), "min_tokens": 3}, [*b"...", END_ID], ""),
    ],
)
async def test_the_end_of_a_text_is_a_token_without_text(
    params: dict[str, Any], ids: list[int], stop_reason: str
) -> None:
    """After a full stop the model ends; a minimum of 3 tokens forbids that until there are 3."""
    async with engine_on(FakeDecoder()) as engine:
        async with engine.generate(now("stop.", **params)) as generation:
            (answer,) = await within_patience(read(generation))
        (sequence,) = generation.sequences
    assert answer.token_ids == ids
    assert answer.text == bytes(ids[:-1]).decode()
    assert sequence.finish_reason is FinishReason.STOP
    assert sequence.stop_reason == stop_reason


async def test_an_ignored_end_is_a_token_like_others() -> None:
    async with engine_on(FakeDecoder()) as engine:
        answer = await ask(engine, "stop.", ignore_eos=True, max_tokens=5)
    assert answer.token_ids[0] == END_ID
    rest = greedy_ids([*b"stop.", END_ID, *answer.token_ids[1:2]], 3)
    assert answer.token_ids[2:] == rest
    assert answer.text == bytes(answer.token_ids[1:]).decode()


async def test_logprobs_arrive_with_their_tokens() -> None:
    """Of each of 4 tokens the log-softmax of the logits, and the 2 likeliest, best first."""
    async with engine_on(FakeDecoder()) as engine:
        answer = await ask(engine, "hello", max_tokens=4, logprobs=2)
    ids = [*b"hello"]
    assert [found.token_id for found in answer.logprobs] == answer.token_ids
    for found in answer.logprobs:
        logits = next_logits(ids).astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum())
        assert found.logprob == pytest.approx(expected[found.token_id], abs=1e-5)
        assert [top_id for top_id, _ in found.top] == np.argsort(-expected)[:2].tolist()
        ids.append(found.token_id)


# --- samples --------------------------------------------------------------------------------------


async def test_samples_share_one_prefill() -> None:
    """Four of a prompt of 30: its tokens are computed once, but for the last one's logits."""
    decoder = FakeDecoder()
    request = now("a" * 30, n=4, temperature=1.0, top_k=1, max_tokens=5)
    async with engine_on(decoder) as engine:
        answers = await ask_all(engine, request)
    assert [answer.text for answer in answers] == [greedy_text("a" * 30, 5)] * 4
    rows = rows_of(decoder)
    assert rows[0] == (30,)
    assert set(sum(rows[1:], ())) == {1}
    assert sum(map(len, rows[1:])) == 4 + 3 * 5  # the first has a token from the prefill


async def test_samples_differ_and_a_seed_repeats_them() -> None:
    """Four of 12 tokens at temperature 5, twice: different among themselves, the same again."""
    found = []
    async with engine_on(FakeDecoder()) as engine:
        for _ in range(2):
            request = now("hello", n=4, temperature=5.0, seed=7, max_tokens=12)
            found.append([answer.token_ids for answer in await ask_all(engine, request)])
    assert found[0] == found[1]
    assert len({tuple(ids) for ids in found[0]}) == 4


@pytest.mark.parametrize("num_neighbours", [0, 5])
async def test_a_seeded_answer_does_not_depend_on_its_neighbours(num_neighbours: int) -> None:
    """Against the same request alone in another engine."""
    asked = {"temperature": 3.0, "seed": 11, "max_tokens": 15}
    async with engine_on(FakeDecoder()) as engine:
        alone = await ask(engine, "hello", **asked)
    async with engine_on(FakeDecoder(num_slots=4)) as engine:
        neighbours = [
            await start(engine, "hello" * number, temperature=2.0, max_tokens=10)
            for number in range(1, num_neighbours + 1)
        ]
        answer = await ask(engine, "hello", **asked)
        await within_patience(asyncio.gather(*neighbours))
    assert answer.token_ids == alone.token_ids


# --- clients that leave ---------------------------------------------------------------------------


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


# --- deadlines ------------------------------------------------------------------------------------


async def test_a_deadline_that_passes_amid_a_text_ends_it_and_disturbs_nobody() -> None:
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


async def test_who_is_late_is_told_when_it_is_due_though_the_step_goes_on() -> None:
    """One runs and one waits, for 0.1 s; their step ends later, and the next is without them."""
    decoder, observer = FakeDecoder(num_slots=2), RecordingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        stays = await start(engine, "stays", max_tokens=4)
        await step_to(decoder, 1)
        deadline_s = time.monotonic() + 0.1
        late = [
            await start(engine, prompt, max_tokens=50, deadline_s=deadline_s) for prompt in "ab"
        ]
        await step_to(decoder, 2)
        for task in late:
            with pytest.raises(DeadlineExceeded, match=r"^Deadline Exceeded$"):
                await within_patience(task)
        assert 0 <= time.monotonic() - deadline_s < LATE_S
        assert len(decoder.calls) == 2
        decoder.release()
        assert (await within_patience(stays)).text == greedy_text("stays", 4)
        await until_idle(engine)
        assert not engine._crossing.num_timers
        assert not engine._crossing.clients
    assert len(observer.ended) == len(set(observer.ended)) == 3


async def test_who_waits_too_long_for_a_slot_is_told_so_when_it_is_due() -> None:
    """One slot; the timeout is 0.1 s, one asks for 0.02 s. Who has the slot may go on."""
    decoder, observer = FakeDecoder(num_slots=1), RecordingObserver()
    decoder.hold()
    queue = QueueLimits(policy=QueuePolicy(timeout_s=0.1, can_override=True))
    async with engine_on(decoder, observer=observer, queue=queue) as engine:
        running = await start(engine, "a", max_tokens=4)
        await step_to(decoder, 1)
        start_s = time.monotonic()
        for timeout_s in (0.02, 0.1):
            waiting = await start(engine, "zzz", timeout_s=timeout_s)
            with pytest.raises(TimedOut, match=r"^Request timeout expired$"):
                await within_patience(waiting)
            waited_s, start_s = time.monotonic() - start_s, time.monotonic()
            assert timeout_s <= waited_s < timeout_s + LATE_S
        decoder.release()
        assert (await within_patience(running)).text == greedy_text("a", 4)
        await until_idle(engine)
    assert (3,) not in rows_of(decoder)
    assert [s.finish_reason for s in observer.ended].count(FinishReason.ABORT) == 2


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


async def test_since_when_the_step_is_under_way() -> None:
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


async def sleep_past(moment_s: float) -> None:
    await asyncio.sleep(moment_s - time.monotonic() + 0.001)


# --- overload -------------------------------------------------------------------------------------


async def test_overload_refuses_at_the_limit_and_recovers() -> None:
    """One runs in the only slot, two may wait; the next is refused, and after they ran is not."""
    decoder = FakeDecoder(num_slots=1)
    decoder.hold()
    async with engine_on(decoder, queue=QueueLimits(max_sequences=2)) as engine:
        tasks = [await start(engine, "a")]
        await step_to(decoder, 1)
        engine.check_room()
        tasks += [await start(engine, prompt) for prompt in "bc"]
        assert engine.num_waiting == 2
        with pytest.raises(Overloaded, match=r"^Exceeds maximum queue size$"):
            await ask(engine, "d")
        with pytest.raises(Overloaded):
            engine.check_room()
        decoder.release()
        answers = await within_patience(asyncio.gather(*tasks))
        assert [answer.text for answer in answers] == [greedy_text(prompt, 8) for prompt in "abc"]
        assert engine.num_waiting == 0
        assert (await ask(engine, "d")).text == greedy_text("d", 8)


async def test_a_prompt_that_cannot_be_computed_by_its_deadline_is_not_started() -> None:
    """It is expected to take more than 9 s, and 5 s are left; running ones are not disturbed."""
    decoder = FakeDecoder(num_slots=1)
    decoder.hold()
    async with engine_on(decoder) as engine:
        running = await start(engine, "a")
        await step_to(decoder, 1)
        for _ in range(MIN_RUNS):
            engine._outlook.read(1, 10.0)
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
            engine._outlook.decoded(1, 0.02, 0.02)
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
            engine._outlook.decoded(1, 0.02, 0.02)
        (answer,) = await ask_all(engine, now("a", max_tokens=30, deadline_s=in_s(0.75)))
        assert answer.text == greedy_text("a", 30)
        for _ in range(100):  # as fast as the fake is, it is slow again
            engine._outlook.decoded(1, 0.02, 0.02)
            engine._outlook.decoded(2, 0.035, 0.035)
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
            engine._outlook.decoded(1, 0.001, 0.001)
        decoder.hold(after=1)
        running = await start(engine, "a")
        await step_to(decoder, 2)
        tasks = [
            await start(engine, "b", max_tokens=4, deadline_s=in_s(seconds))
            for seconds in (0.1, 60.0)
        ]
        with pytest.raises(DeadlineExceeded):
            await within_patience(tasks[0])
        late_factor = engine._outlook.end_trust.factor
        assert late_factor > 1
        decoder.release()
        await within_patience(asyncio.gather(running, tasks[1]))
        await until_idle(engine)
        assert 1 < engine._outlook.end_trust.factor < late_factor


def in_s(seconds: float) -> float:
    return time.monotonic() + seconds


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


# --- a model that fails ---------------------------------------------------------------------------


class FailingDecoder(FakeDecoder):
    """Raises for a run with a `!` in it, or gives NaN for that row."""

    def __init__(self, num_slots: int = 8, *, gives_nan: bool = False) -> None:
        super().__init__(num_slots)
        self.gives_nan = gives_nan

    def run(
        self,
        first_slot: int,
        rows: Sequence[np.ndarray],
        num_past: Sequence[int],
        num_logits: int = 1,
    ) -> np.ndarray:
        logits = super().run(first_slot, rows, num_past, num_logits)
        is_bad = [BAD in row for row in rows]
        if any(is_bad) and not self.gives_nan:
            raise ValueError("no !")
        logits[is_bad] = np.nan
        return logits


async def test_a_failed_step_fails_only_the_sequences_in_it() -> None:
    """One decodes and one waits while a prompt of 3 fails."""
    decoder = FailingDecoder(num_slots=2)
    decoder.hold()
    async with engine_on(decoder) as engine:
        first = await start(engine, "a", max_tokens=12)
        await step_to(decoder, 2)
        failing = await start(engine, "bb!")
        last = await start(engine, "c", max_tokens=12)
        decoder.release()
        with pytest.raises(ModelFailed, match=r"^ValueError: no !$"):
            await within_patience(failing)
        answers = await within_patience(asyncio.gather(first, last))
        await until_idle(engine)
    assert [answer.text for answer in answers] == [greedy_text("a", 12), greedy_text("c", 12)]


async def test_a_failed_decoding_step_fails_all_that_decode_and_none_that_wait() -> None:
    decoder, observer = FakeDecoder(num_slots=2), RecordingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        failing = [await start(engine, "a", max_tokens=12)]
        await step_to(decoder, 1)
        failing.append(await start(engine, "b", max_tokens=12))
        waiting = await start(engine, "c", max_tokens=12)
        await step_to(decoder, 3)
        decoder.error = MemoryError("none left")
        await step_to(decoder, 4)
        decoder.error = None
        decoder.release()
        for task in failing:
            with pytest.raises(ModelFailed, match="MemoryError: none left"):
                await within_patience(task)
        assert (await within_patience(waiting)).text == greedy_text("c", 12)
    reasons = [sequence.finish_reason for sequence in observer.ended]
    assert reasons == [FinishReason.ERROR, FinishReason.ERROR, FinishReason.LENGTH]


async def test_steps_that_fail_in_a_row_break_the_engine_once() -> None:
    """Three of one row each: all else is ended too, new requests are refused, and it is said."""
    decoder, observer = FakeDecoder(num_slots=1), RecordingObserver()
    decoder.error = ValueError("broken")
    decoder.hold()
    broken: list[None] = []
    async with engine_on(
        decoder, observer=observer, on_broken=lambda: broken.append(None)
    ) as engine:
        tasks = [await start(engine, letter) for letter in "abcdef"]
        decoder.release()
        ends = await within_patience(asyncio.gather(*tasks, return_exceptions=True))
        assert [type(end) for end in ends] == [ModelFailed] * 6
        with pytest.raises(Unavailable):
            engine.generate(now("g"))
        await within_patience(asyncio.to_thread(engine.close, PATIENCE_S))
        await asyncio.sleep(0)  # whatever else it says
    assert len(decoder.calls) == MAX_FAILED_STEPS == 3
    assert broken == [None]
    assert len(observer.ended) == len(set(observer.ended)) == 6
    assert {sequence.finish_reason for sequence in observer.ended} == {FinishReason.ERROR}
    assert engine.num_waiting == 0


async def test_a_good_step_between_bad_ones_keeps_the_engine_going() -> None:
    decoder = FailingDecoder()
    async with engine_on(decoder) as engine:
        for _ in range(2 * MAX_FAILED_STEPS):
            with pytest.raises(ModelFailed):
                await ask(engine, "!")
            assert (await ask(engine, "a", max_tokens=1)).text == greedy_text("a", 1)


async def test_a_row_that_is_not_finite_fails_alone() -> None:
    """Three prompts in one run, the second of which gives NaN."""
    decoder = FailingDecoder(gives_nan=True)
    decoder.hold()
    async with engine_on(decoder) as engine:
        opener = await start(engine, "x", max_tokens=1)
        await step_to(decoder, 1)
        tasks = [await start(engine, prompt, max_tokens=9) for prompt in ("aaa", "b!b", "ccc")]
        decoder.release()
        ends = await within_patience(asyncio.gather(opener, *tasks, return_exceptions=True))
        await until_idle(engine)
    assert rows_of(decoder)[1] == (3, 3, 3)
    assert isinstance(ends[2], ModelFailed)
    assert "not finite" in str(ends[2])
    good = [end for end in ends if isinstance(end, Answer)]
    assert [answer.text for answer in good[1:]] == [greedy_text("aaa", 9), greedy_text("ccc", 9)]


async def test_what_is_not_finite_is_never_copied() -> None:
    """A prompt of 31 gives NaN once; when the model is well again, all of it is computed anew."""
    decoder = FailingDecoder(gives_nan=True)
    prompt = "b" * 30 + "!"
    async with engine_on(decoder) as engine:
        with pytest.raises(ModelFailed, match="not finite"):
            await ask(engine, prompt)
        decoder.gives_nan, bad = False, len(decoder.calls)
        with pytest.raises(ModelFailed, match="no !"):
            await ask(engine, prompt)
    assert rows_of(decoder)[bad] == (31,)


async def test_a_check_of_integrity_that_fails_when_idle_breaks_the_engine() -> None:
    """A slot is damaged during a request's last run: the answer is good, nothing comes after."""
    decoder = FakeDecoder()
    decoder.hold()
    broken = asyncio.Event()
    async with engine_on(decoder, on_broken=broken.set) as engine:
        task = await start(engine, "a", max_tokens=2)
        await step_to(decoder, 2)
        engine.cache._lengths[7] = 5  # of a slot that was never used
        decoder.release()
        assert (await within_patience(task)).text == greedy_text("a", 2)
        await within_patience(broken.wait())
        with pytest.raises(Unavailable):
            engine.generate(now("b"))


async def test_every_number_adds_up_when_idle() -> None:
    """After each of 20 answers the cache is recounted, and no slot is in use."""
    async with engine_on(FakeDecoder(num_slots=3)) as engine:
        for number in range(20):
            await ask(engine, "a" * (number % 7 + 1), max_tokens=number % 5 + 1)
            await until_idle(engine)
            engine.cache.check_integrity([])
            assert engine.cache.num_tokens == 0


# --- stopping -------------------------------------------------------------------------------------


async def test_stopping_ends_what_runs_and_what_waits() -> None:
    """One decodes, one waits, one has just come; the run under way ends first."""
    decoder, observer = FakeDecoder(num_slots=1), RecordingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        tasks = [await start(engine, "a", max_tokens=30), await start(engine, "b")]
        await step_to(decoder, 2)
        tasks.append(await start(engine, "c"))
        engine.stop()
        with pytest.raises(Unavailable, match="stopped accepting"):
            engine.generate(now("d"))
        with pytest.raises(Unavailable):
            engine.check_room()
        decoder.release()
        for task in tasks:
            with pytest.raises(Unavailable):
                await within_patience(task)
        await within_patience(asyncio.to_thread(engine.close, PATIENCE_S))
    assert len(decoder.calls) == 2
    assert [sequence.finish_reason for sequence in observer.ended] == [FinishReason.ABORT] * 3
    assert engine.num_waiting == 0


async def test_engines_are_independent() -> None:
    """One fails, one is held: the third answers."""
    decoders = FakeDecoder(), FakeDecoder(), FakeDecoder()
    decoders[0].error = ValueError("no")
    decoders[1].hold()
    async with (
        engine_on(decoders[0]) as a,
        engine_on(decoders[1]) as b,
        engine_on(decoders[2]) as c,
    ):
        held = await start(b, "hello")
        with pytest.raises(ModelFailed):
            await ask(a, "hello")
        assert (await ask(c, "hello")).text == greedy_text("hello", 8)
        assert not held.done()
        decoders[1].release()
        assert (await within_patience(held)).text == greedy_text("hello", 8)


def test_a_closed_event_loop_does_not_break_the_engine() -> None:
    """The loop ends amid a text: the engine finishes it without a reader, and can be closed."""
    decoder, observer = FakeDecoder(), RecordingObserver()
    decoder.hold()
    engines: list[GenerationEngine] = []
    broken: list[None] = []

    async def serve() -> None:
        limits, queue = SchedulerLimits(), QueueLimits()
        engines.append(
            GenerationEngine(
                "fake",
                decoder,
                VOCABULARY,
                limits,
                queue,
                observer,
                lambda: broken.append(None),
            )
        )
        engines[0].generate(now("a", max_tokens=20))
        await step_to(decoder, 2)

    asyncio.run(serve())
    decoder.release()
    decoder.wait_for_runs(20)
    engines[0].close(PATIENCE_S)
    assert engines[0]._crossing.join(0)
    assert len(observer.ended) == 1
    assert broken == []


# --- readers --------------------------------------------------------------------------------------


async def test_a_slow_reader_gets_what_it_missed_in_one_chunk_and_holds_up_nobody() -> None:
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


# --- observers ------------------------------------------------------------------------------------


async def test_every_step_is_told_with_its_tokens_and_times() -> None:
    """A prompt of 5 and 4 tokens: one prefill with a first token, 3 steps with a next one."""
    observer = RecordingObserver()
    async with engine_on(FakeDecoder(), observer=observer) as engine:
        started_s = time.monotonic()
        await ask(engine, "hello", max_tokens=4)
        await until_idle(engine)
    took_s = time.monotonic() - started_s
    assert [(s.phase, s.num_rows, s.num_tokens) for s in observer.steps] == [
        ("prefill", 1, 5),
        *[("decode", 1, 1)] * 3,
    ]
    assert [len(step.time_to_first_token_s) for step in observer.steps] == [1, 0, 0, 0]
    assert [len(step.inter_token_s) for step in observer.steps] == [0, 1, 1, 1]
    assert all(step.run_s > 0 and step.other_s > 0 for step in observer.steps)
    assert sum(step.run_s + step.other_s for step in observer.steps) < took_s
    (timings,) = (sequence.timings for sequence in observer.ended)
    assert observer.steps[0].time_to_first_token_s == (timings.time_to_first_token_s,)
    between = sum(step.inter_token_s[0] for step in observer.steps[1:])
    assert between == pytest.approx(timings.decode_s)


async def test_a_chunk_of_a_prompt_is_told_without_a_token() -> None:
    """Of 20 tokens in chunks of 8, the third gives the first token."""
    observer = RecordingObserver()
    async with engine_on(FakeDecoder(), observer=observer, max_prefill_tokens=8) as engine:
        await ask(engine, "a" * 20, max_tokens=1)
    assert [(s.num_tokens, len(s.time_to_first_token_s)) for s in observer.steps] == [
        (8, 0),
        (8, 0),
        (4, 1),
    ]


async def test_moved_rows_are_told_with_the_step_after_them() -> None:
    """Three samples of a prompt of 5: two copies of 4 tokens before the second step."""
    observer = RecordingObserver()
    request = now("hello", n=3, temperature=1.0, top_k=1, max_tokens=2)
    async with engine_on(FakeDecoder(), observer=observer) as engine:
        await ask_all(engine, request)
    assert observer.steps[0].num_moved_rows == 0
    assert observer.steps[1].num_moved_rows >= 2


# --- all together ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
async def test_under_stress_every_sequence_ends_once_and_every_answer_is_right(seed: int) -> None:
    """500 requests of 1 to 3 samples, 5 slots: some leave, expire, fail or are refused."""
    random = np.random.default_rng(seed)
    decoder, observer = FailingDecoder(num_slots=5, gives_nan=True), RecordingObserver()
    counts: dict[str, int] = {}
    admitted: list[Generation] = []

    async def client(engine: GenerationEngine) -> None:
        fate = random.choice(["stay", "leave", "expire", "fail"], p=[0.6, 0.2, 0.1, 0.1])
        prompt = random.choice(["", "the same beginning of all"]) + "".join(
            random.choice([*"abc"], random.integers(1, 12))
        )
        max_tokens, n = int(random.integers(1, 16)), int(random.integers(1, 4))
        request = now(
            prompt + "!" * (fate == "fail"),
            max_tokens=max_tokens,
            n=n,
            temperature=1.0,
            top_k=1,
            deadline_s=time.monotonic() + random.exponential(0.01) if fate == "expire" else None,
            priority=int(random.integers(3)),
        )
        try:
            async with engine.generate(request) as generation:
                admitted.append(generation)
                if fate == "leave":
                    await asyncio.sleep(random.exponential(0.005))
                    end = "left"
                else:
                    answers = await within_patience(read(generation))
                    end = "answered"
                    assert fate != "fail"
                    assert [answer.text for answer in answers] == [
                        greedy_text(prompt, max_tokens)
                    ] * n
        except (Overloaded, DeadlineExceeded, ModelFailed) as error:
            end = type(error).__name__
            expected = {"expire": "DeadlineExceeded", "fail": "ModelFailed"}
            assert end in ("Overloaded", "WaitTooLong", expected.get(fate)) or (
                fate == "expire" and end == "TooLate"
            )
        counts[end] = counts.get(end, 0) + 1

    async with engine_on(
        decoder, observer=observer, queue=QueueLimits(max_sequences=60), max_prefill_tokens=24
    ) as engine:
        async with asyncio.TaskGroup() as group:
            for number in range(500):
                group.create_task(client(engine))
                if number % 5 == 0:
                    await asyncio.sleep(0.002)
        await until_idle(engine)
        engine.cache.check_integrity([])
    sequences = [sequence for generation in admitted for sequence in generation.sequences]
    assert len(observer.ended) == len(set(observer.ended)) == len(sequences)
    assert set(observer.ended) == set(sequences)
    assert sum(counts.values()) == 500
    assert counts["answered"] > 50, counts


def test_prompts_of_these_tests_are_their_bytes() -> None:
    """`greedy_text` reads a prompt as the requests here do."""
    assert prompt_ids("hello") == request_of("hello").prompt_ids.tolist()


@pytest.mark.parametrize(
    ("num_tokens", "since_s", "gaps_s"),
    [
        (1, 0.0, []),  # the first token follows none
        (1, 15.0, [4.0]),  # a token that came alone: at 19, after the one at 15
        (4, 0.0, [3.0, 3.0, 3.0]),  # the whole output of a search, first and last at 10 and 19
    ],
)
def test_the_time_between_tokens_is_that_since_the_one_before(
    num_tokens: int, since_s: float, gaps_s: list[float]
) -> None:
    sequence = sequence_of([1])
    sequence.timings.first_token_s, sequence.timings.last_token_s = 10.0, 19.0
    update = SequenceUpdate(sequence, token_ids=(5,) * num_tokens, since_s=since_s)
    assert update.gaps_s == gaps_s
