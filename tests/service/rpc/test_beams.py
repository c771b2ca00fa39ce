"""Beam search over the wire: whole outputs, best first, with their scores."""

import json
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import generation_pb2 as pb
from tritonclient.grpc import service_pb2 as oip

from tests.fakes.beams import reference_search
from tests.fakes.command_line import run
from tests.fakes.serving import Served, add_strings, refusal, strings_of
from tests.fakes.sessions import next_logits

pytestmark = pytest.mark.asyncio(loop_scope="module")


def best_of(prompt: str, **sizes: Any) -> list[tuple[list[int], float]]:
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
        add_strings(tensors, name, value)
    texts = [prompt + result.text for result in whole.results]
    assert strings_of(await served.inference.ModelInfer(tensors)) == texts


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
    flags = ("--beam-width", "3", "--n", "2", "--max-tokens", "4", "--length-penalty", "0.5")
    result = await run(served, "generate", "tale", "once", *flags)
    assert result.exit_code == 0, result.output
    (best, _), _ = best_of("once", beam_width=3, n=2, max_tokens=4, length_penalty=0.5)
    assert "log probability" in result.output
    assert bytes(best).decode() in result.output
