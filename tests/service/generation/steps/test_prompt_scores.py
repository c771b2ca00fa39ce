"""Scores of prompts: exact, computed once per request, and within the memory of a step."""

import asyncio
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
import torch

from service.errors import InvalidArgument, ModelFailed
from service.generation.choosing.sampling import TokenLogprobs, logprobs_of
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.sequence import Sequence
from service.generation.steps.packed_scheduler import PackedInputs
from service.generation.steps.scheduler import SchedulerLimits
from service.records import FinishReason
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes.generation import (
    Steps,
    ask_all,
    engine_on,
    now,
    read,
    request_of,
    rows_of,
    sequence_of,
    within_patience,
)
from tests.fakes.paged import PagedDecoder
from tests.fakes.sessions import FakeDecoder, greedy_text, next_logits
from tests.fakes.tiny_gpt import MAX_TOKENS, random_prompts, tiny_gpt, tiny_graph, torch_logits

PROMPT = "a prompt of some chunks, and a bit"  # 34 tokens
NO_SCORES_THEN_SCORES: list[dict[str, Any]] = [{}, {"prompt_logprobs": 1}]
KINDS: list[dict[str, Any]] = [
    {"n": 2, "temperature": 1.0},
    {"beam_width": 2},
    {"max_tokens": 0},
]
LIMITS: dict[str, Any] = {"max_scored_tokens": 8}


def expected_scores(prompt: str, num_top: int) -> list[TokenLogprobs]:
    ids = list(prompt.encode())
    places = range(1, len(ids))
    return [logprobs_of(next_logits(ids[:place]), ids[place], num_top) for place in places]


async def scored(decoder: FakeDecoder, prompt: str, **params: Any) -> Sequence:
    """The first sample of a request that is alone."""
    async with (
        engine_on(decoder, **LIMITS) as engine,
        engine.generate(now(prompt, **params)) as generation,
    ):
        await within_patience(read(generation))
        return generation.sequences[0]


@pytest.mark.parametrize("num_top", [0, 3])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 16, 17, 34])
async def test_each_token_is_scored_after_those_before_it(length: int, num_top: int) -> None:
    decoder = FakeDecoder()
    sequence = await scored(decoder, PROMPT[:length], prompt_logprobs=num_top, max_tokens=3)
    assert sequence.prompt_logprobs == expected_scores(PROMPT[:length], num_top)
    assert sequence.num_output_tokens == 3


async def test_a_run_gives_the_logits_of_no_more_tokens_than_the_bound() -> None:
    """34 tokens in runs of 8 at most; the decoder refuses more."""
    decoder = FakeDecoder()
    await scored(decoder, PROMPT, prompt_logprobs=1, max_tokens=1)
    assert [row for (row,) in rows_of(decoder)] == [8, 8, 8, 8, 2]


async def test_a_prompt_without_output_is_scored_whole() -> None:
    decoder = FakeDecoder()
    sequence = await scored(decoder, PROMPT[:17], prompt_logprobs=1, max_tokens=0)
    assert sequence.prompt_logprobs == expected_scores(PROMPT[:17], 1)
    assert sequence.num_output_tokens == 0
    assert sequence.finish_reason is FinishReason.LENGTH
    assert sequence.timings.total_s >= sequence.timings.time_to_first_token_s > 0


async def test_a_prompt_that_the_cache_has_is_computed_again_and_scored() -> None:
    decoder = FakeDecoder()
    async with engine_on(decoder, **LIMITS) as engine:
        for params in NO_SCORES_THEN_SCORES:
            async with engine.generate(now(PROMPT, **params)) as generation:
                (answer,) = await within_patience(read(generation))
            assert answer.text == greedy_text(PROMPT, 8)
        (sequence,) = generation.sequences
        assert sequence.num_reused_tokens == 0
        assert sequence.prompt_logprobs == expected_scores(PROMPT, 1)


@pytest.mark.parametrize("max_tokens", [0, 4])
async def test_of_several_samples_the_first_scores_the_prompt(max_tokens: int) -> None:
    decoder = FakeDecoder()
    async with engine_on(decoder, **LIMITS) as engine:
        request = now(PROMPT, n=3, temperature=1.0, prompt_logprobs=1, max_tokens=max_tokens)
        async with engine.generate(request) as generation:
            answers = await within_patience(read(generation))
        assert [len(answer.token_ids) <= max_tokens for answer in answers] == [True] * 3
        assert all(answer.is_complete for answer in answers)
        first, *others = generation.sequences
        assert first.prompt_logprobs == expected_scores(PROMPT, 1)
        assert not any(each.prompt_logprobs for each in others)
    num_prompt_runs = sum(max(rows) > 1 for rows in rows_of(decoder))
    assert num_prompt_runs == 5, "the others copied it"


async def test_a_search_scores_its_prompt_and_finds_what_it_finds_without() -> None:
    async with engine_on(FakeDecoder(), **LIMITS) as engine:
        params: dict[str, Any] = {"beam_width": 3, "n": 2, "max_tokens": 5}
        plain = await ask_all(engine, now(PROMPT, **params))
        async with engine.generate(now(PROMPT, **params, prompt_logprobs=1)) as generation:
            found = await within_patience(read(generation))
        assert [each.token_ids for each in found] == [each.token_ids for each in plain]
        assert generation.sequences[0].prompt_logprobs == expected_scores(PROMPT, 1)


async def test_a_graph_that_gives_the_last_logits_only_is_refused_by_name() -> None:
    async with engine_on(FakeDecoder()) as engine:
        with pytest.raises(InvalidArgument, match=r"^prompt_logprobs is 1, and the model's graph"):
            engine.generate(now(PROMPT, prompt_logprobs=1))


async def test_logits_that_are_not_finite_end_the_request() -> None:
    decoder = FakeDecoder()
    run = decoder.run
    decoder.run = lambda *arguments: run(*arguments) * np.nan  # type: ignore[method-assign]
    async with engine_on(decoder, **LIMITS) as engine:
        for params in KINDS:
            async with engine.generate(now(PROMPT, prompt_logprobs=1, **params)) as generation:
                with pytest.raises(ModelFailed, match="not finite"):
                    await within_patience(read(generation))


def test_sequences_that_decode_go_on_between_the_chunks_of_a_scored_prompt() -> None:
    """Each chunk and what its run costs count against the tokens between two decoding steps."""
    limits = SchedulerLimits(max_prefill_tokens=40, overhead_tokens=8, max_scored_tokens=8)
    steps = Steps(limits=limits)
    steps.add(sequence_of("b", max_tokens=30))
    steps.step()
    steps.add(sequence_of(PROMPT, prompt_logprobs=1, max_tokens=1, queued_s=1.0))
    phases = [step.plan.phase for step in steps.drain()]
    first = phases.index("prefill")
    last = len(phases) - phases[::-1].index("prefill")
    assert "decode" in phases[first:last]
    assert "prefill prefill prefill prefill" not in " ".join(phases)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scored") / "model.onnx"
    path.write_bytes(tiny_graph().SerializeToString())
    return path


async def test_scores_are_pytorch_s(path: Path) -> None:
    """Within 1e-4, for prompts of 1 to 90 tokens in chunks of 32, all at the same time."""
    decoder = OnnxDecoder(
        OnnxSession(path, SessionOptions()),
        num_slots=4,
        max_tokens=MAX_TOKENS,
        max_rows=4,
    )
    network = tiny_gpt()
    async with engine_on(decoder, max_scored_tokens=decoder.max_logits_per_row) as engine:

        async def check(ids: list[int]) -> None:
            request = request_of(ids, prompt_logprobs=5, max_tokens=1, received_s=monotonic())
            async with engine.generate(request) as generation:
                await within_patience(read(generation))
            scores = generation.sequences[0].prompt_logprobs
            logits_SV = torch.from_numpy(torch_logits(network, ids)).double()  # noqa: N806
            expected_SV = torch.log_softmax(logits_SV, dim=1).numpy()  # noqa: N806
            assert [each.token_id for each in scores] == ids[1:]
            for place, score in enumerate(scores):
                row = expected_SV[place]
                assert score.logprob == pytest.approx(row[score.token_id], abs=1e-4)
                best = np.sort(row)[:-6:-1]
                assert [found for _, found in score.top] == pytest.approx(best, abs=1e-4)

        await asyncio.gather(*map(check, random_prompts([1, 2, 31, 32, 33, 64, 90])))
        assert engine.cache.num_used == 0


async def test_over_blocks_scores_are_those_of_a_fresh_cache() -> None:
    """Three prompts with one beginning at the same time, 8 logits of prompts in a run at most."""
    decoder = PagedDecoder(24, 8, 3, 64, 29)
    most_positions = 0
    run = decoder.run

    def watched(inputs: PackedInputs) -> np.ndarray:
        nonlocal most_positions
        most_positions = max(most_positions, len(inputs.logit_positions))
        return run(inputs)

    decoder.run = watched  # type: ignore[method-assign]
    prompts = [[*range(1, 25), last] for last in (3, 4, 5)]
    async with engine_on(decoder, max_prefill_tokens=16, **LIMITS) as engine:

        async def check(ids: list[int]) -> None:
            request = request_of(ids, prompt_logprobs=0, max_tokens=2, received_s=monotonic())
            async with engine.generate(request) as generation:
                await within_patience(read(generation))
            (sequence,) = generation.sequences
            logits = decoder.alone(np.array(ids))
            expected = [logprobs_of(logits[at], ids[at + 1], 0) for at in range(len(ids) - 1)]
            found = [each.logprob for each in sequence.prompt_logprobs]
            assert found == pytest.approx([each.logprob for each in expected], abs=1e-4)
            assert sequence.num_reused_tokens == 0

        for _ in range(2):  # the second time all of them are in the cache
            await asyncio.gather(*map(check, prompts))
    assert 8 <= most_positions <= 8 + 3, "of prompts, and one of each sequence"
