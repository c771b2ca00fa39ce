"""The generation engine: its answers, its samples, and what its observer gets; a fake decoder.

Where an order matters the decoder is held: nothing else stops the engine's thread.
"""

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from service.records import FinishReason
from tests.fakes.generation import (
    RecordingObserver,
    ask,
    ask_all,
    engine_on,
    now,
    read,
    rows_of,
    start,
    step_to,
    until_idle,
    within_patience,
)
from tests.fakes.sessions import END_ID, FakeDecoder, greedy_ids, greedy_text, next_logits


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
async def test_a_sequence_ends_with_its_reason(
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
