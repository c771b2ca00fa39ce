"""The generation engine over a model that fails, and as it stops; and all endings together."""

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import pytest

from service.errors import DeadlineExceeded, ModelFailed, Overloaded, Unavailable
from service.generation.cache.kv_cache import KVCache
from service.generation.engine import MAX_FAILED_STEPS, GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.steps.scheduler import SchedulerLimits
from service.generation.stream import Generation, SequenceUpdate
from service.records import FinishReason
from tests.fakes.generation import (
    VOCABULARY,
    Answer,
    RecordingObserver,
    ask,
    engine_on,
    now,
    read,
    request_of,
    rows_of,
    sequence_of,
    start,
    step_to,
    until_idle,
    within_patience,
)
from tests.fakes.sessions import PATIENCE_S, FakeDecoder, greedy_text, prompt_ids

BAD = ord("!")  # in a prompt: what a test's decoder refuses


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
        places: Sequence[int] = (),
    ) -> np.ndarray:
        logits = super().run(first_slot, rows, num_past, num_logits, places)
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
        assert isinstance(engine.cache, KVCache)
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
                "fake", decoder, VOCABULARY, limits, queue, [observer], lambda: broken.append(None)
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
                fate == "expire" and end in ("TooLate", "TooEarly")
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
