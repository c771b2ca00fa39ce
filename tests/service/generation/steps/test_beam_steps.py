"""Beams in the steps of others: slots set aside, forks, and every way a search ends early."""

import asyncio
import math
import time
from typing import Any

import numpy as np
import pytest

from service.errors import DeadlineExceeded, InvalidArgument, ModelFailed
from service.generation.steps.speculation import Speculator
from service.records import FinishReason
from tests.fakes.beams import (
    LETTERS,
    ChanceDecoder,
    CheckingObserver,
    check,
    expected,
    outputs_of,
    search,
    search_of,
)
from tests.fakes.generation import (
    RecordingObserver,
    ask_all,
    engine_on,
    read,
    sequence_of,
    until_idle,
    within_patience,
)


def greedy_of(prompt: str, max_tokens: int) -> list[int]:
    """What a text without beams has: the best of each step."""
    ((ids, _),) = expected(prompt.encode(), beam_width=1, length_penalty=0.0, max_tokens=max_tokens)
    return ids


# --- in the steps of others -----------------------------------------------------------------------


@pytest.mark.parametrize("has_states", [False, True])
async def test_each_search_and_each_text_is_what_it_is_alone(has_states: bool) -> None:
    """Random arrivals and leavers, 12 slots; everything is recounted after every step.

    Texts of one token each, samples and searches of 2 to 6 beams, prompts of 1 to 45 tokens in
    chunks of 12. A client that stays gets exactly what it gets alone; no sequence is left.
    """
    random = np.random.default_rng(7)
    observer = CheckingObserver()
    decoder = ChanceDecoder(12, 80)
    decoder.has_states = has_states
    checked = left = 0

    async def one(number: int) -> None:
        nonlocal checked, left
        for _ in range(int(random.integers(40))):
            await asyncio.sleep(0.001)
        prompt = bytes(random.choice(LETTERS, size=random.integers(1, 46)).tolist())
        width = int(random.choice([0, 0, 2, 3, 6]))
        n = int(random.integers(1, width + 1)) if width else 1
        max_tokens = int(random.integers(1, 16))
        request = search_of(prompt, beam_width=width, n=n, max_tokens=max_tokens)
        async with engine.generate(request) as generation:
            if number % 5 == 0:
                await asyncio.sleep(float(random.random()) * 0.02)
                left += 1
                return
            await within_patience(read(generation))
        sizes = {"beam_width": max(1, width), "n": n, "max_tokens": max_tokens}
        found = outputs_of(generation.sequences)
        wanted = expected(prompt, **sizes, length_penalty=1.0 if width else 0.0)
        if width:
            check(found, wanted)
        else:
            assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
        checked += 1

    async with engine_on(decoder, observer=observer, max_prefill_tokens=12) as engine:
        observer.engine = engine
        await within_patience(asyncio.gather(*(one(number) for number in range(60))))
        await until_idle(engine)
        assert not engine._steps.searches
        assert engine.num_waiting == engine.num_running == 0
    assert engine.failure is None
    assert (checked, left) == (48, 12)
    assert max(step.num_rows for step in observer.steps) > 8
    ended = observer.ended
    assert len(set(ended)) == len(ended)


async def test_slots_of_beams_to_come_are_given_to_no_other_request() -> None:
    """Two letters: 2 beams, then 4; over 5 slots one of three texts runs beside them meanwhile."""
    decoder, observer = ChanceDecoder(5), CheckingObserver()
    decoder.hold()
    sizes: dict[str, Any] = {"n": 3, "beam_width": 4, "max_tokens": 8}
    async with engine_on(decoder, observer=observer) as engine:
        observer.engine = engine
        request = search_of("a", allowed_token_ids=LETTERS[:2], **sizes)
        found = asyncio.create_task(search(engine, request))
        await asyncio.sleep(0)
        texts = [
            asyncio.create_task(ask_all(engine, search_of(text, beam_width=0, ignore_eos=True)))
            for text in "bcd"
        ]
        await asyncio.to_thread(decoder.wait_for_runs, 1)
        decoder.release()
        banned = {*range(257)} - {*LETTERS[:2]}
        check(await within_patience(found), expected(b"a", banned=lambda _: banned, **sizes))
        await within_patience(asyncio.gather(*texts))
    widths = [len(call.rows) for call in decoder.calls]
    assert max(widths) == 5
    assert widths.index(3) < widths.index(5)


async def test_no_request_overtakes_a_search_that_waits_for_its_slots() -> None:
    """Three slots of four are taken, a search of 2 waits, and a text comes after it."""
    decoder, observer = ChanceDecoder(4), RecordingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        early = [
            asyncio.create_task(ask_all(engine, search_of(t, beam_width=0, ignore_eos=True)))
            for t in ("x", "y", "z")
        ]
        await asyncio.to_thread(decoder.wait_for_runs, 1)
        waiting = asyncio.create_task(search(engine, search_of("a", beam_width=2, max_tokens=3)))
        await asyncio.sleep(0)
        late = asyncio.create_task(ask_all(engine, search_of("b", beam_width=0, max_tokens=1)))
        await asyncio.sleep(0)
        decoder.release()
        await within_patience(asyncio.gather(*early, waiting, late))
    by_prompt = {bytes(s.request.prompt_ids.tolist()): s.timings for s in observer.ended}
    assert len(by_prompt) == 5
    assert by_prompt[b"x"].finished_s <= by_prompt[b"a"].scheduled_s <= by_prompt[b"b"].scheduled_s


@pytest.mark.parametrize("has_states", [False, True])
async def test_beams_may_grow_while_a_prompt_is_in_chunks(has_states: bool) -> None:
    """Two letters allowed: 2, 4, then 8 beams, beside a prompt of 60 tokens, 4 a step."""
    decoder, observer = ChanceDecoder(10, 80), CheckingObserver()
    decoder.has_states = has_states
    decoder.hold()
    sizes: dict[str, Any] = {"beam_width": 8, "n": 8, "max_tokens": 6}
    async with engine_on(decoder, observer=observer, max_prefill_tokens=4) as engine:
        observer.engine = engine
        found = asyncio.create_task(
            search(engine, search_of("a", allowed_token_ids=LETTERS[:2], **sizes))
        )
        await asyncio.sleep(0)
        long = asyncio.create_task(ask_all(engine, search_of("l" * 60, beam_width=0)))
        await asyncio.to_thread(decoder.wait_for_runs, 1)
        decoder.release()
        wanted = expected(b"a", banned=lambda _: {*range(257)} - {*LETTERS[:2]}, **sizes)
        check(await within_patience(found), wanted)
        (answer,) = await within_patience(long)
    assert answer.token_ids == expected(b"l" * 60, beam_width=1, length_penalty=0.0)[0][0]
    kinds = [(call.rows[0].__len__(), len(call.rows)) for call in decoder.calls]
    assert {(4, 1), (1, 2), (1, 4), (1, 8)} <= set(kinds)


async def test_a_fork_copies_what_the_other_beam_does_not_have() -> None:
    """After the first step beams of a prompt of 50 exchange the few tokens in which they differ."""
    starts: list[tuple[int, int]] = []

    class Noting(ChanceDecoder):
        def copy(self, source: int, target: int, num_tokens: int, start: int = 0) -> None:
            starts.append((start, num_tokens))
            super().copy(source, target, num_tokens, start)

    async with engine_on(Noting(4)) as engine:
        await search(engine, search_of("p" * 50, min_tokens=10, max_tokens=10))
    assert starts[:3] == [(0, 50)] * 3
    assert len(starts) > 3
    assert all(start >= 50 for start, _ in starts[3:])


def test_nothing_is_drafted_for_beams_or_beside_them() -> None:
    """A text that repeats itself has a draft, but not as a beam, nor while there are beams."""
    text, beam = (sequence_of("abcabcabc", max_tokens=20, beam_width=width) for width in (0, 4))
    speculator = Speculator(7)
    for num_rows in (1, 2):
        speculator.stepped(num_rows, 1.0)
    assert speculator.draft([text]) is not None
    assert speculator.draft([beam]) is None
    assert speculator.draft([text, beam]) is None


# --- ends before the end --------------------------------------------------------------------------


async def test_leaving_frees_every_beam() -> None:
    decoder, observer = ChanceDecoder(), CheckingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        observer.engine = engine
        async with engine.generate(search_of("a", n=2, min_tokens=8)):
            decoder.hold(after=3)
            await asyncio.to_thread(decoder.wait_for_runs, 4)
            assert engine.num_running == 4
        decoder.release()
        await until_idle(engine)
    assert [s.finish_reason for s in observer.ended] == [FinishReason.ABORT] * 2


async def test_a_deadline_ends_a_search_that_runs_and_one_that_waits() -> None:
    """8 slots: one of 8 beams runs, another one of 2 waits for them."""
    decoder, observer = ChanceDecoder(), RecordingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        due_s = time.monotonic() + 0.05
        asked = [
            asyncio.create_task(
                search(engine, search_of("a", beam_width=width, n=2, deadline_s=due_s))
            )
            for width in (8, 2)
        ]
        for task in asked:
            with pytest.raises(DeadlineExceeded):
                await within_patience(task)
        decoder.release()
        await until_idle(engine)
        found = await search(engine, search_of("b"))
    check(found, expected(b"b", beam_width=4))
    assert [s.finish_reason for s in observer.ended[:4]] == [FinishReason.ABORT] * 4


@pytest.mark.parametrize("failing_run", [1, 2, 4])
async def test_a_failed_run_fails_a_search_once_and_others_go_on(failing_run: int) -> None:
    """In the prompt's run, or in that of beams; later requests are served from clean slots."""

    class Failing(ChanceDecoder):
        def run(self, *args: Any, **named: Any) -> np.ndarray:
            logits = super().run(*args, **named)
            if len(self.calls) == failing_run:
                raise ModelFailed("no more")
            return logits

    observer = CheckingObserver()
    async with engine_on(Failing(), observer=observer) as engine:
        observer.engine = engine
        with pytest.raises(ModelFailed, match="no more"):
            await search(engine, search_of("a", n=3, min_tokens=8))
        check(await search(engine, search_of("a", n=3)), expected(b"a", beam_width=4, n=3))
    assert [s.finish_reason for s in observer.ended[:3]] == [FinishReason.ERROR] * 3


async def test_a_beam_that_is_not_finite_fails_its_search_alone() -> None:
    """One beam's logits after its third token; a text that decodes beside it goes on."""

    class Spoiled(ChanceDecoder):
        is_spoiled = False

        def _logits_after(self, slot: int, row: tuple[int, ...], num_past: int) -> np.ndarray:
            logits = super()._logits_after(slot, row, num_past)
            if self.is_spoiled or self.slots[slot][0] != ord("a") or len(self.slots[slot]) < 4:
                return logits
            self.is_spoiled = True
            return np.full_like(logits, math.nan)

    decoder, observer = Spoiled(), CheckingObserver()
    async with engine_on(decoder, observer=observer) as engine:
        observer.engine = engine
        text = asyncio.create_task(ask_all(engine, search_of("b", beam_width=0, max_tokens=12)))
        with pytest.raises(ModelFailed, match="not finite"):
            await search(engine, search_of("a", min_tokens=8))
        (answer,) = await within_patience(text)
        assert answer.token_ids == greedy_of("b", 12)
        check(await search(engine, search_of("a")), expected(b"a", beam_width=4))


async def test_a_search_without_enough_outputs_fails() -> None:
    """One token is allowed, so there is one output of it."""
    async with engine_on(ChanceDecoder()) as engine:
        with pytest.raises(ModelFailed, match="found 1 of the 2 best"):
            await search(engine, search_of("a", n=2, allowed_token_ids=LETTERS[:1]))
        await until_idle(engine)
        assert not engine._steps.searches


async def test_more_beams_than_slots_are_refused() -> None:
    async with engine_on(ChanceDecoder(6), max_running=5) as engine:
        with pytest.raises(InvalidArgument, match="beam_width is 6, expected at most 5"):
            engine.generate(search_of("a", beam_width=6))
        assert not engine.num_waiting


async def test_a_search_counts_its_tokens_once_and_its_results_each() -> None:
    observer = RecordingObserver()
    async with engine_on(ChanceDecoder(), observer=observer) as engine:
        found = await search(engine, search_of("a", n=3))
    num_tokens = sum(len(ids) for ids, _ in found)
    told = [len(s.time_to_first_token_s) + len(s.inter_token_s) for s in observer.steps]
    assert (sum(told), told[-1]) == (num_tokens, num_tokens)
    assert len(observer.ended) == 3
    for sequence in observer.ended:
        t = sequence.timings
        assert t.queued_s <= t.scheduled_s <= t.first_token_s <= t.last_token_s <= t.finished_s
