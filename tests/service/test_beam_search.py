"""Beam search in the engine: what a plain search finds, in the same steps as everybody else's."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import generation_pb2 as pb
from tritonclient.grpc import service_pb2 as oip
from typer.testing import CliRunner

from service.cli import app
from service.errors import DeadlineExceeded, InvalidArgument, ModelFailed
from service.generation.engine import GenerationEngine
from service.generation.sampling_params import SamplingParams
from service.generation.sequence import FinishReason, GenerationRequest, RanStep
from service.generation.speculation import Speculator
from tests.beams import ChanceDecoder, chance_logits, expected, reference_search
from tests.encoder_decoder import logits_after, make_encoder_decoder
from tests.fakes import END_ID, FakeDecoder, greedy_ids, next_logits
from tests.generation import (
    RecordingObserver,
    ask_all,
    engine_on,
    read,
    request_of,
    sequence_of,
    within_patience,
)
from tests.service.serving import Served, refusal, serving, write_models

LETTERS = tuple(range(ord("a"), ord("a") + 6))


class CheckingObserver(RecordingObserver):
    """Recounts scheduler and cache after every step, on the engine's thread."""

    engine: GenerationEngine

    def step_ran(self, step: RanStep) -> None:
        super().step_ran(step)
        self.engine._scheduler.check_integrity()
        running = self.engine._scheduler.running()
        assert len(running) <= self.engine._scheduler.max_running


def search_of(prompt: str | Sequence[int], **params: Any) -> GenerationRequest:  # noqa: ANN401
    return request_of(prompt, received_s=time.monotonic(), **{"beam_width": 4} | params)


async def search(engine: GenerationEngine, request: GenerationRequest) -> list[Any]:
    """Outputs and scores, best first, with the order in which they came."""
    async with engine.generate(request) as generation:
        await within_patience(read(generation))
    return outputs_of(generation.sequences)


def outputs_of(sequences: Sequence[Any]) -> list[Any]:
    return [(s.token_ids[s.num_prompt_tokens : s.num_tokens].tolist(), s.score) for s in sequences]


def check(found: list[Any], wanted: list[tuple[list[int], float]]) -> None:
    assert [ids for ids, _ in found] == [ids for ids, _ in wanted]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in wanted], rtol=1e-5)


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


# --- in the steps of others -----------------------------------------------------------------------


async def test_each_search_and_each_text_is_what_it_is_alone() -> None:
    """Random arrivals and leavers, 12 slots; everything is recounted after every step.

    Texts of one token each, samples and searches of 2 to 6 beams, prompts of 1 to 45 tokens in
    chunks of 12. Who stays gets exactly what it gets alone; nobody is left.
    """
    random = np.random.default_rng(7)
    observer = CheckingObserver()
    decoder = ChanceDecoder(12, 80)
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
        assert not engine._searches
        assert engine.num_waiting == engine.num_running == 0
    assert engine.failure is None
    assert (checked, left) == (48, 12)
    assert max(step.num_rows for step in observer.steps) > 8
    ended = observer.ended
    assert len(set(ended)) == len(ended)


async def until_idle(engine: GenerationEngine) -> None:
    async with asyncio.timeout(20):
        while engine.num_running or engine.num_waiting:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.001)


async def test_slots_of_beams_to_come_are_nobody_else_s() -> None:
    """One search of 3 and three texts over 4 slots: one text runs beside it, two come after it."""
    decoder, observer = ChanceDecoder(4), CheckingObserver()
    decoder.hold()
    async with engine_on(decoder, observer=observer) as engine:
        observer.engine = engine
        first = asyncio.create_task(
            search(engine, search_of("a", beam_width=3, n=3, min_tokens=8, max_tokens=8))
        )
        await asyncio.sleep(0)
        others = [
            asyncio.create_task(ask_all(engine, search_of(text, beam_width=0, ignore_eos=True)))
            for text in "bcd"
        ]
        await asyncio.to_thread(decoder.wait_for_runs, 1)
        decoder.release()
        check(await first, expected(b"a", beam_width=3, n=3, min_tokens=8, max_tokens=8))
        await within_patience(asyncio.gather(*others))
    assert max(len(call.rows) for call in decoder.calls) == 4


async def test_a_search_that_waits_for_its_slots_is_passed_by_nobody() -> None:
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


async def test_beams_may_grow_while_a_prompt_is_in_chunks() -> None:
    """Two letters allowed: 2, 4, then 8 beams, beside a prompt of 60 tokens, 4 a step."""
    decoder, observer = ChanceDecoder(10, 80), CheckingObserver()
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


def test_beams_are_not_drafted_and_nobody_is_beside_them() -> None:
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
    """In the prompt's run, or in that of beams; who comes after it is served from clean slots."""

    class Failing(ChanceDecoder):
        def run(self, *args: Any, **named: Any) -> np.ndarray:  # noqa: ANN401
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


def greedy_of(prompt: str, max_tokens: int) -> list[int]:
    """What a text without beams has: the best of each step."""
    ((ids, _),) = expected(prompt.encode(), beam_width=1, length_penalty=0.0, max_tokens=max_tokens)
    return ids


async def test_a_search_without_enough_outputs_fails() -> None:
    """One token is allowed, so there is one output of it."""
    async with engine_on(ChanceDecoder()) as engine:
        with pytest.raises(ModelFailed, match="found 1 of the 2 best"):
            await search(engine, search_of("a", n=2, allowed_token_ids=LETTERS[:1]))
        await until_idle(engine)
        assert not engine._searches


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
        SamplingParams(**{"beam_width": 4} | params)
    assert message in str(caught.value)


# --- over the wire --------------------------------------------------------------------------------


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    write_models(tmp_path)
    async with serving(tmp_path) as running:
        yield running


def best_of(prompt: str, **sizes: Any) -> list[tuple[list[int], float]]:  # noqa: ANN401
    """Of the served fake decoder."""
    return reference_search(lambda output: next_logits([*prompt.encode(), *output]), **sizes)


PARAMS: dict[str, Any] = {"beam_width": 3, "n": 2, "max_tokens": 5}


async def test_a_stream_gives_whole_outputs_best_first(served: Served) -> None:
    """With their scores; the same by one answer, and as texts over the Open Inference Protocol."""
    prompt = "once upon a time"
    params = pb.SamplingParams(**PARAMS)
    request = pb.GenerateRequest(model="tale", text=prompt, sampling_params=params)
    chunks = [chunk async for chunk in served.generation.Generate(request)]
    whole = await served.generation.GenerateUnary(request)
    assert [chunk.sample_index for chunk in chunks] == [0, 1]
    for chunk, result in zip(chunks, whole.results, strict=True):
        assert chunk.finish_reason == pb.FINISH_REASON_LENGTH
        assert (chunk.text, chunk.token_ids, chunk.score) == (
            result.text,
            result.token_ids,
            result.score,
        )
        assert chunk.text == bytes(chunk.token_ids).decode()
    assert chunks[0].score >= chunks[1].score
    scores = [score for _, score in best_of(prompt, **PARAMS)]
    np.testing.assert_allclose([chunk.score for chunk in chunks], scores, rtol=1e-5)
    assert whole.usage.output_tokens == 10
    tensors = oip.ModelInferRequest(model_name="tale")
    for name, value in (("text_input", prompt), ("sampling_parameters", json.dumps(PARAMS))):
        tensor = tensors.inputs.add(name=name, datatype="BYTES", shape=[1])
        tensor.contents.bytes_contents.append(value.encode())
    raw = (await served.inference.ModelInfer(tensors)).raw_output_contents[0]
    texts = [prompt + result.text for result in whole.results]
    assert raw == b"".join(len(text).to_bytes(4, "little") + text.encode() for text in texts)


async def test_texts_without_a_search_have_no_score(served: Served) -> None:
    params = pb.SamplingParams(max_tokens=2)
    request = pb.GenerateRequest(model="tale", text="a", sampling_params=params)
    response = await served.generation.GenerateUnary(request)
    assert not response.results[0].HasField("score")


async def test_more_beams_than_the_model_runs_are_an_invalid_argument(served: Served) -> None:
    request = pb.GenerateRequest(
        model="tale", text="a", sampling_params=pb.SamplingParams(beam_width=16)
    )
    code, text = await refusal(served.generation.GenerateUnary(request))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "beam_width is 16, expected at most 8" in text


async def test_the_command_shows_the_best_with_their_log_probabilities(served: Served) -> None:
    command = ["generate", "tale", "once", "--beam-width", "3", "--n", "2", "--max-tokens", "4"]
    command += ["--length-penalty", "0.5", "--address", served.address]
    result = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert result.exit_code == 0, result.output
    (best, _), _ = best_of("once", beam_width=3, n=2, max_tokens=4, length_penalty=0.5)
    assert "log probability" in result.output
    assert bytes(best).decode() in result.output
