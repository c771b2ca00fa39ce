"""Generating over the exported graph, many at once, gives what each request gets alone.

A real engine, scheduler, cache and graph; the reference recomputes every token from scratch.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from models.networks.gpt import generate
from service.contract.manifest import Precision
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.sequence import GenerationRequest, Sequence
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes.generation import (
    Answer,
    RecordingObserver,
    ask_all,
    draft_eagerly,
    engine_on,
    request_of,
)
from tests.fakes.processor import BLOCKS, in_blocks
from tests.fakes.sessions import END_ID
from tests.fakes.tiny_gpt import (
    MAX_TOKENS,
    VOCAB_SIZE,
    random_prompts,
    run,
    tiny_gpt,
    tiny_graph,
    torch_logits,
)

NUM_SLOTS = 6
CHUNK = 24  # so that some prompts go whole, and others in chunks
TIE = 1e-4  # logits are near 2; closer than that, rounding may decide
(BEGINNING,) = random_prompts((20,), seed=9)  # of every other prompt
PRECISIONS = ("fp32", "int8", *map(in_blocks, BLOCKS))

LogitsOf = Callable[[list[int]], np.ndarray]


@cache
def session_of(precision: Precision) -> OnnxSession:
    return OnnxSession(tiny_graph(precision).SerializeToString(), SessionOptions(num_threads=1))


def decoder_of(precision: Precision, num_slots: int = NUM_SLOTS) -> OnnxDecoder:
    """With a cache of its own, without earlier contents."""
    return OnnxDecoder(
        session_of(precision), num_slots=num_slots, max_tokens=MAX_TOKENS, max_rows=num_slots
    )


@dataclass(frozen=True)
class Asked:
    """One request of a crowd, to be made whenever it is its turn."""

    prompt: list[int]
    max_tokens: int
    params: dict[str, Any] = field(default_factory=dict)

    def request(self) -> GenerationRequest:
        return request_of(self.prompt, max_tokens=self.max_tokens, **{"logprobs": 0} | self.params)


def crowd_of(count: int, seed: int, **params: Any) -> list[Asked]:
    """Prompts of 1 to 60 tokens, every other with a common beginning; 1 to 36 more are asked."""
    random = np.random.default_rng(seed)
    prompts = random_prompts(random.integers(1, 41, size=count).tolist(), seed)
    prompts = [BEGINNING * (place % 2) + prompt for place, prompt in enumerate(prompts)]
    return [Asked(prompt, int(random.integers(1, 37)), params) for prompt in prompts]


def sampled_crowd_of(count: int, seed: int) -> list[Asked]:
    """Every way to choose, each with a seed of its own."""
    ways: list[dict[str, Any]] = [
        {"temperature": 1.0},
        {"temperature": 0.7, "top_k": 20},
        {"temperature": 1.3, "top_p": 0.9, "min_p": 0.01},
        {"temperature": 1.0, "repetition_penalty": 1.2, "presence_penalty": 0.5},
        {"temperature": 0.0, "frequency_penalty": 0.5, "no_repeat_ngram_size": 2},
    ]
    return [
        Asked(asked.prompt, asked.max_tokens, {**ways[number % len(ways)], "seed": number})
        for number, asked in enumerate(crowd_of(count, seed))
    ]


async def together(
    decoder: OnnxDecoder,
    crowd: list[Asked],
    seed: int = 0,
    observer: RecordingObserver | None = None,
    **limits: Any,
) -> list[Answer]:
    """Half come at once, the others one by one; passers-by come and leave amid a text."""
    random = np.random.default_rng(seed)
    limits = {"max_prefill_tokens": CHUNK, "overhead_tokens": 8} | limits

    async with engine_on(decoder, observer=observer, **limits) as engine:

        async def ask(asked: Asked) -> Answer:
            await asyncio.sleep(random.choice([0.0, random.uniform(0.0, 0.2)]))
            (answer,) = await ask_all(engine, asked.request())
            return answer

        async def pass_by(asked: Asked) -> None:
            await asyncio.sleep(random.uniform(0.0, 0.2))
            async with engine.generate(asked.request()):
                await asyncio.sleep(random.uniform(0.0, 0.02))

        passing = [asyncio.create_task(pass_by(asked)) for asked in crowd_of(8, seed + 1_000)]
        answers = await asyncio.gather(*map(ask, crowd))
        await asyncio.gather(*passing)
    return answers


async def alone(decoder: OnnxDecoder, crowd: list[Asked]) -> list[Answer]:
    """One after the other, and nothing of one is kept for the next."""
    answers: list[Answer] = []
    async with engine_on(decoder, max_prefill_tokens=CHUNK, can_reuse_prefixes=False) as engine:
        for asked in crowd:
            answers += await ask_all(engine, asked.request())
    return answers


def check_same(asked: Asked, found: list[int], wanted: list[int], logits_of: LogitsOf) -> None:
    """The same tokens, or another where the two best logits lie within `TIE`, and no further."""
    if found == wanted:
        return
    pairs = zip([*found, -1], [*wanted, -1], strict=False)
    place = next(place for place, (one, other) in enumerate(pairs) if one != other)
    second, best = np.sort(logits_of(asked.prompt + wanted[:place]))[-2:]
    assert best - second < TIE, f"token {place} of {asked} is another"


def check_recomputed(asked: Asked, answer: Answer) -> None:
    """Against PyTorch without a cache, whose end of a text is left out."""
    wanted = generate(tiny_gpt(), asked.prompt, asked.max_tokens)
    if len(wanted) < asked.max_tokens:
        wanted.append(END_ID)
    check_same(asked, answer.token_ids, wanted, exact_logits)


def exact_logits(ids: list[int]) -> np.ndarray:
    last: np.ndarray = torch_logits(tiny_gpt(), ids)[-1]
    return last


def graph_logits(precision: Precision) -> LogitsOf:
    """By the graph itself, from scratch."""
    decoder = decoder_of(precision, num_slots=1)
    return lambda ids: run(decoder, 0, [ids], [0])[0]


def logprobs_of(answer: Answer) -> np.ndarray:
    return np.array([found.logprob for found in answer.logprobs])


@pytest.mark.parametrize("can_reuse_prefixes", [True, False])
async def test_sixty_four_at_once_say_what_recomputing_says(can_reuse_prefixes: bool) -> None:
    """Greedy, in 6 slots, against PyTorch without a cache, one request at a time."""
    crowd, observer = crowd_of(64, seed=0), RecordingObserver()
    answers = await together(
        decoder_of("fp32"), crowd, observer=observer, can_reuse_prefixes=can_reuse_prefixes
    )
    for asked, answer in zip(crowd, answers, strict=True):
        check_recomputed(asked, answer)
    assert max(step.num_rows for step in observer.steps) == NUM_SLOTS
    assert (num_reused(observer.ended) > 300) == can_reuse_prefixes


async def test_a_prompt_whose_slot_was_taken_says_what_it_says_without_reuse() -> None:
    """Two slots, six prompts in between: 64 tokens come from the store, and the others' do not."""
    shared, *others = random_prompts((66, 60, 60, 60, 60, 60, 60), seed=6)
    crowd = [Asked([*ids], 8) for ids in (shared, *others, [*shared, 1], [*others[0], 2])]
    decoder, observer = decoder_of("fp32", num_slots=2), RecordingObserver()
    limits: dict[str, Any] = {"max_prefill_tokens": CHUNK, "max_prefix_bytes": 2**22}
    async with engine_on(decoder, observer=observer, **limits) as engine:
        found = [(await ask_all(engine, asked.request()))[0] for asked in crowd]
    wanted = await alone(decoder_of("fp32", num_slots=2), crowd)
    assert [each.num_stored_tokens for each in observer.ended] == [0] * 7 + [64, 32]
    for asked, one, other in zip(crowd, found, wanted, strict=True):
        check_same(asked, one.token_ids, other.token_ids, exact_logits)
        assert np.abs(logprobs_of(one) - logprobs_of(other)).max() < 1e-5


async def test_short_prompts_in_one_run_say_what_recomputing_says() -> None:
    """60 of 1 to 12 tokens and 1 to 4 more: some of them share a run, padded to the longest."""
    random, observer = np.random.default_rng(2), RecordingObserver()
    prompts = random_prompts(random.integers(1, 13, size=60).tolist(), seed=2)
    crowd = [Asked(prompt, int(random.integers(1, 5))) for prompt in prompts]
    async with engine_on(decoder_of("fp32"), observer=observer) as engine:
        found = await asyncio.gather(*(ask_all(engine, asked.request()) for asked in crowd))
    for asked, (answer,) in zip(crowd, found, strict=True):
        check_recomputed(asked, answer)
    assert any(step.phase == "prefill" and step.num_rows > 1 for step in observer.steps)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.3, "seed": 4}], ids=str)
async def test_drafts_change_no_token_of_a_graph(params: dict[str, Any]) -> None:
    """8 texts one by one, whose prompts repeat themselves: drafted, checked, some of it said."""
    crowd = [Asked((prompt * 4)[:50], 40, params) for prompt in random_prompts((6, 10) * 4, seed=3)]
    observer = RecordingObserver()
    async with engine_on(decoder_of("fp32"), observer=observer) as engine:
        draft_eagerly(engine)
        found = [(await ask_all(engine, asked.request()))[0] for asked in crowd]
    wanted = await alone(decoder_of("fp32"), crowd)
    assert sum(step.num_drafted for step in observer.steps) > 50
    assert any(step.num_agreed for step in observer.steps)
    for asked, one, other in zip(crowd, found, wanted, strict=True):
        check_same(asked, one.token_ids, other.token_ids, exact_logits)
        if one.token_ids == other.token_ids:
            np.testing.assert_allclose(logprobs_of(one), logprobs_of(other), atol=1e-4)


def num_reused(sequences: list[Sequence]) -> int:
    return sum(sequence.num_reused_tokens for sequence in sequences)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("seed", range(2))
async def test_a_crowd_changes_no_bit_of_an_answer(precision: Precision, seed: int) -> None:
    """32 at once against one at a time: the same tokens, and the same logprobs to the last bit.

    Without copied beginnings: those were computed in pieces of other sizes.
    """
    crowd = crowd_of(32, seed)
    found = await together(decoder_of(precision), crowd, seed, can_reuse_prefixes=False)
    wanted = await alone(decoder_of(precision), crowd)
    for one, other in zip(found, wanted, strict=True):
        assert one.token_ids == other.token_ids
        assert logprobs_of(one).tobytes() == logprobs_of(other).tobytes()


@pytest.mark.parametrize("precision", PRECISIONS)
async def test_reusing_beginnings_changes_no_answer(precision: Precision) -> None:
    """48 at once with 20 tokens in common in half of them: greedy tokens stay as they are."""
    crowd, observer = crowd_of(48, seed=5), RecordingObserver()
    found = await together(decoder_of(precision), crowd, observer=observer)
    wanted = await alone(decoder_of(precision), crowd)
    assert num_reused(observer.ended) > 300
    for asked, one, other in zip(crowd, found, wanted, strict=True):
        check_same(asked, one.token_ids, other.token_ids, graph_logits(precision))
        if one.token_ids == other.token_ids:
            difference = np.abs(logprobs_of(one) - logprobs_of(other)).max()
            assert difference < 2 * TIE


@pytest.mark.parametrize("precision", PRECISIONS)
async def test_seeded_answers_are_repeated_in_any_crowd(precision: Precision) -> None:
    """40 at once, each chosen in one of five ways, against the same alone; and they are random."""
    crowd = sampled_crowd_of(40, seed=3)
    wanted = await alone(decoder_of(precision), crowd)
    for seed in range(2):
        found = await together(decoder_of(precision), crowd, seed, can_reuse_prefixes=False)
        assert [answer.token_ids for answer in found] == [answer.token_ids for answer in wanted]
    others = [Asked(a.prompt, a.max_tokens, {**a.params, "seed": 99}) for a in crowd]
    changed = await alone(decoder_of(precision), others)
    is_changed = [a.token_ids != b.token_ids for a, b in zip(changed, wanted, strict=True)]
    assert sum(is_changed) > len(crowd) / 2


@pytest.mark.parametrize("precision", PRECISIONS)
async def test_used_slots_leak_nothing_into_an_answer(precision: Precision) -> None:
    """Two slots, filled by others before each of 6 prompts: bit for bit as in fresh ones."""
    decoder = decoder_of(precision, num_slots=2)
    filling = [Asked(prompt, 48) for prompt in random_prompts((48, 48), seed=7)]
    for asked in crowd_of(6, seed=8):
        await together(decoder, filling, can_reuse_prefixes=False)
        assert all(buffer[:, :, -2].any() for buffer in decoder._buffers)
        (found,) = await alone(decoder, [asked])
        (wanted,) = await alone(decoder_of(precision, num_slots=2), [asked])
        assert found.token_ids == wanted.token_ids
        assert logprobs_of(found).tobytes() == logprobs_of(wanted).tobytes()


async def test_samples_that_share_a_prefill_say_what_they_say_alone() -> None:
    """Four of the likeliest token each: equal to one, though three computed no prompt."""
    asked = Asked(BEGINNING * 2, 30, {"temperature": 1.0, "top_k": 1})
    observer = RecordingObserver()
    request = request_of(asked.prompt, max_tokens=30, n=4, **asked.params)
    async with engine_on(decoder_of("fp32"), observer=observer) as engine:
        answers = await ask_all(engine, request)
    for answer in answers:
        check_recomputed(asked, answer)
    assert num_reused(observer.ended) == 3 * 39


def test_answers_vary_enough_to_tell_them_apart() -> None:
    """A model that repeats itself would hide a mix-up: 64 greedy answers of about 18 tokens."""
    answers = [generate(tiny_gpt(), a.prompt, a.max_tokens) for a in crowd_of(64, seed=0)]
    assert len({tuple(answer) for answer in answers}) > 60
    used = {token for answer in answers for token in answer}
    assert len(used) > VOCAB_SIZE / 4
