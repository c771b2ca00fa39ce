"""Beam search in the engine: what a plain search finds, and what may be asked of one."""

import asyncio
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from service.calls.sampling import Sampling
from service.errors import InvalidArgument
from service.records import FinishReason
from tests.fakes.beams import (
    LETTERS,
    ChanceDecoder,
    CheckingObserver,
    chance_logits,
    check,
    expected,
    outputs_of,
    reference_search,
    search,
    search_of,
)
from tests.fakes.encoder_decoder import logits_after, make_encoder_decoder
from tests.fakes.generation import ask_all, engine_on, read, within_patience
from tests.fakes.sessions import END_ID, FakeDecoder, greedy_ids

# --- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "params",
    [
        {"beam_width": 2},
        {"beam_width": 4, "n": 4, "max_tokens": 1},
        {"beam_width": 4, "n": 2, "length_penalty": 0.0},
        {"beam_width": 4, "n": 4, "length_penalty": 2.5, "max_tokens": 20},
        {"beam_width": 16, "n": 16, "max_tokens": 12},
        {"beam_width": 5, "n": 3, "min_tokens": 6, "max_tokens": 9},
        {"beam_width": 3, "n": 3, "min_tokens": 8, "max_tokens": 8},
    ],
)
async def test_a_search_finds_what_a_plain_one_finds(params: dict[str, Any]) -> None:
    """Of 6 prompts at once, over 64 slots; the plain one sorts every continuation."""
    prompts = ["a", "b", "hello", "once upon a time", "x" * 30, "."]
    observer = CheckingObserver()
    async with engine_on(ChanceDecoder(64), observer=observer) as engine:
        observer.engine = engine
        asked = [search(engine, search_of(prompt, **params)) for prompt in prompts]
        found = await within_patience(asyncio.gather(*asked))
    for prompt, outputs in zip(prompts, found, strict=True):
        check(outputs, expected(prompt.encode(), **params))
        assert len(outputs) == params.get("n", 1)


async def test_searches_end_at_every_kind_of_end() -> None:
    """Stop tokens and ids allowed; 60 prompts meet ends of both kinds, and the limit."""
    params = {"allowed_token_ids": (*LETTERS, END_ID), "stop_token_ids": (LETTERS[0],)}
    sizes: dict[str, Any] = {"beam_width": 3, "n": 3, "max_tokens": 6}
    reasons = []
    async with engine_on(ChanceDecoder(64), max_running=64) as engine:
        for number in range(60):
            prompt = f"p{number}"
            request = search_of(prompt, **params | sizes)
            async with engine.generate(request) as generation:
                await within_patience(read(generation))
            check(
                outputs_of(generation.sequences),
                expected(
                    prompt.encode(),
                    ends=(LETTERS[0], END_ID),
                    banned=lambda _: set(range(257)) - {*LETTERS, END_ID},
                    **sizes,
                ),
            )
            reasons += [(s.finish_reason, s.stop_reason) for s in generation.sequences]
    ends = {(FinishReason.STOP, ""), (FinishReason.STOP, "97"), (FinishReason.LENGTH, "")}
    assert set(reasons) == ends


async def test_no_ngram_repeats_within_a_beam_whatever_the_others_say() -> None:
    """Three letters and pairs of them that occur once; each beam has a history of its own."""
    letters = LETTERS[:3]

    def banned(output: list[int]) -> set[int]:
        ids = [*b"p", *output]
        again = {after for first, after in pairwise(ids) if first == ids[-1]}
        return {*range(257)} - {*letters} | again

    sizes: dict[str, Any] = {"beam_width": 4, "n": 4, "max_tokens": 6}
    async with engine_on(ChanceDecoder(8)) as engine:
        request = search_of("p", allowed_token_ids=letters, no_repeat_ngram_size=2, **sizes)
        found = await search(engine, request)
    check(found, expected(b"p", banned=banned, **sizes))


@pytest.mark.parametrize("beam_width", [0, 1])
async def test_one_beam_is_the_greedy_text(beam_width: int) -> None:
    async with engine_on(FakeDecoder()) as engine:
        (answer,) = await ask_all(engine, search_of("hello", beam_width=beam_width, max_tokens=12))
    assert answer.token_ids == greedy_ids(b"hello", 12)


async def test_a_search_finds_likelier_outputs_than_greed() -> None:
    """Of 20 prompts none is worse with 8 beams, and most are better: the sums tell."""
    better = 0
    for number in range(20):
        prompt = f"prompt {number}".encode()
        greedy = expected(prompt, beam_width=1, length_penalty=0.0)
        async with engine_on(ChanceDecoder()) as engine:
            ((_, score),) = await search(
                engine, search_of(prompt, beam_width=8, length_penalty=0.0)
            )
        assert score >= greedy[0][1] - 1e-4
        better += score > greedy[0][1] + 1e-4
    assert better > 10


class EndingDecoder(FakeDecoder):
    """Its best next token is always the end; every other one is `gap` less likely, in logits."""

    def __init__(self, gap: float) -> None:
        super().__init__(64)
        self.gap = gap

    def _logits_after(self, slot: int, row: tuple[int, ...], num_past: int) -> np.ndarray:
        super()._logits_after(slot, row, num_past)
        logits = np.zeros(self.vocab_size, np.float32)
        logits[END_ID] = self.gap
        return logits


@pytest.mark.parametrize(
    ("gap", "params", "num_steps"),
    [
        # The end has log probability -0.01 and any longer output at least -10.01, divided by 20.
        (10.0, {"beam_width": 2, "n": 1}, 1),
        # The two best: the end at once, and one other token before it; two of them are no likelier.
        (10.0, {"beam_width": 2, "n": 2, "length_penalty": 0.0}, 2),
        # Divided by 20^4 what is longer ranks higher, however unlikely: nothing ends the search.
        (10.0, {"beam_width": 2, "n": 1, "length_penalty": 4.0}, 20),
        # All 257 tokens are alike, and so are outputs of any length once divided by it.
        (0.0, {"beam_width": 2, "n": 1, "min_tokens": 2}, 20),
    ],
)
async def test_a_search_ends_as_soon_as_no_beam_can_become_one_of_the_best(
    gap: float, params: dict[str, Any], num_steps: int
) -> None:
    decoder = EndingDecoder(gap)
    async with engine_on(decoder) as engine:
        found = await search(engine, search_of("a", max_tokens=20, **params))
    assert len(found) == params["n"]
    assert len(decoder.calls) == num_steps


async def test_an_encoder_decoder_s_beams_share_their_source() -> None:
    """8 sources, 3 beams each, six slots: as recomputed without any cache; forks copy no source."""
    random = np.random.default_rng(1)
    sources = [random.integers(256, size=length).tolist() for length in (1, 2, 5, 7, 9, 11, 12, 3)]
    sizes: dict[str, Any] = {"beam_width": 3, "n": 3, "max_tokens": 6}
    limits: dict[str, Any] = {"can_reuse_prefixes": False, "has_whole_prompts": True}
    async with engine_on(make_encoder_decoder(6), **limits) as engine:
        asked = [search(engine, search_of(source, **sizes)) for source in sources]
        found = await within_patience(asyncio.gather(*asked))
    for source, outputs in zip(sources, found, strict=True):
        check(outputs, reference_search(partial(logits_after, source), **sizes))


async def test_logprobs_and_scores_add_up() -> None:
    """Of each token the model's own log probability, also where the likeliest are banned."""
    params: dict[str, Any] = {"n": 4, "max_tokens": 5, "logprobs": 2, "banned_token_ids": (65, 66)}
    async with engine_on(ChanceDecoder()) as engine:
        generation = engine.generate(search_of("hello", **params))
        async with generation:
            answers = await within_patience(read(generation))
    for answer, sequence in zip(answers, generation.sequences, strict=True):
        assert [each.token_id for each in answer.logprobs] == answer.token_ids
        assert sum(each.logprob for each in answer.logprobs) == pytest.approx(sequence.score)
        ids = [*b"hello"]
        for each in answer.logprobs:
            logits = chance_logits(ids).astype(np.float64)
            assert [token for token, _ in each.top] == np.argsort(-logits)[:2].tolist()
            logprob = logits[each.token_id] - np.log(np.exp(logits).sum())
            assert each.logprob == pytest.approx(logprob, abs=1e-5)
            ids.append(each.token_id)


# --- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"beam_width": 17}, "beam_width is 17, expected 0 to 16"),
        ({"beam_width": 4, "n": 5}, "n is 5, expected at most beam_width, which is 4"),
        ({"temperature": 0.7}, "temperature is 0.7, expected 0 or 1 where beam_width is 4"),
        ({"top_k": 5}, "top_k is 5, expected 0 where"),
        ({"top_p": 0.5}, "top_p is 0.5, expected 1.0 where"),
        ({"min_p": 0.5}, "min_p is 0.5, expected 0.0 where"),
        ({"repetition_penalty": 1.5}, "repetition_penalty is 1.5, expected 1.0 where"),
        ({"presence_penalty": 1.0}, "presence_penalty is 1.0, expected 0.0 where"),
        ({"frequency_penalty": 1.0}, "frequency_penalty is 1.0, expected 0.0 where"),
        ({"logit_bias": {1: 1.0}}, "logit_bias is an object, expected none where"),
        ({"stop": ["x"]}, "stop is a list, expected none where"),
        ({"length_penalty": -0.1}, "length_penalty is -0.1, expected 0 to 10"),
        ({"length_penalty": 10.5}, "length_penalty is 10.5, expected 0 to 10"),
    ],
)
def test_what_makes_no_sense_with_beams_is_refused_by_name(
    params: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Sampling(**{"beam_width": 4} | params)
    assert message in str(caught.value)
