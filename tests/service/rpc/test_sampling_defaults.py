"""The sampling that a model's publisher recommends: used where a request does not name its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import text_pb2

from service.calls.sampling import Sampling
from service.calls.sampling_values import sampling_in, sampling_of
from service.errors import LoadError
from tests.fakes.serving import Served, serving, within_patience
from tests.fakes.sessions import generator_manifest, greedy_text, write_model

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROMPT = "once upon a time"
GREEDY = {"temperature": 0.0, "top_k": 3, "max_tokens": 6}


@asynccontextmanager
async def recommended(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_model(repository, "calm", generator_manifest(sampling=GREEDY))
    async with serving(repository, **settings) as served:
        yield served


SERVE = recommended


async def answered(served: Served, **params: Any) -> pb.GenerateResponse:
    request = pb.GenerateRequest(
        model="calm", text=PROMPT, sampling_params=pb.SamplingParams(**params)
    )
    answer: pb.GenerateResponse = await within_patience(served.generation.GenerateUnary(request))
    return answer


async def test_a_request_that_names_nothing_has_the_models_own(served: Served) -> None:
    for _ in range(3):
        answer = await answered(served)
        assert answer.results[0].text == greedy_text(PROMPT, 6)
        assert answer.usage.output_tokens == 6


async def test_a_request_decides_for_itself(served: Served) -> None:
    answer = await answered(served, max_tokens=9)
    assert answer.results[0].text == greedy_text(PROMPT, 9)
    assert len((await answered(served, n=2)).results) == 2  # they are drawn: greedy ones are equal


async def test_the_list_of_models_has_them(served: Served) -> None:
    models = (await within_patience(served.text.ListModels(text_pb2.ListModelsRequest()))).models
    assert dict(models[0].sampling_defaults) == GREEDY


async def test_they_can_be_turned_off(tmp_path: Path) -> None:
    async with recommended(tmp_path, sampling_defaults="none") as served:
        assert (await answered(served, temperature=0.0)).usage.output_tokens > 6
        request = text_pb2.ListModelsRequest()
        models = (await within_patience(served.text.ListModels(request))).models
        assert not models[0].sampling_defaults


async def test_tensors_have_them_too() -> None:
    assert sampling_in("{}").over({"top_p": 0.5}).top_p == 0.5
    assert sampling_in('{"top_p": "0.7"}').over({"top_p": 0.5}).top_p == 0.7
    assert sampling_of({"top_k": 0}).over({"top_k": 9}).top_k == 0


async def test_beams_have_none_and_several_samples_are_not_greedy() -> None:
    beams, several = Sampling.of({"beam_width": 4}), Sampling.of({"n": 2})
    assert beams.over(GREEDY) == beams
    drawn = several.over({"temperature": 0.0, "top_p": 0.5})
    assert (drawn.temperature, drawn.top_p, drawn.n) == (1.0, 0.5, 2)
    assert several.over({"temperature": 0.5}).temperature == 0.5
    assert Sampling.of({"n": 2, "temperature": 0.0}).over({"temperature": 0.5}).is_greedy


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"top_p": 3}, "manifest.json: sampling: top_p is 3.0, expected 0 to 1"),
        ({"top_k": "x"}, "manifest.json: sampling: top_k is 'x', expected a whole number"),
    ],
)
async def test_what_no_request_may_say_no_manifest_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sampling: dict[str, Any], words: str
) -> None:
    write_model(tmp_path, "wild", generator_manifest(sampling=sampling))
    async with serving(tmp_path):
        assert words in caplog.text


async def test_a_manifest_names_no_other_parameters() -> None:
    with pytest.raises(LoadError, match=r"sampling is .*, expected an object of temperature"):
        generator_manifest(sampling={"stop": 1})
