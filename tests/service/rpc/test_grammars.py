"""Grammars over the wire: in the typed call, and in Triton's `sampling_parameters`."""

import asyncio
import json
from typing import Any

import grpc
import pytest
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import text_pb2
from tritonclient.grpc import service_pb2 as oip

from tests.fakes.serving import Served, add_strings, refusal, strings_of

pytest.importorskip("llguidance")
pytestmark = pytest.mark.asyncio(loop_scope="module")
DIGITS = {"type": "integer", "minimum": 10, "maximum": 99}


def request_of(**params: Any) -> pb.GenerateRequest:
    sampling = pb.SamplingParams(**{"max_tokens": 20} | params)
    return pb.GenerateRequest(model="tale", text="once", sampling_params=sampling)


@pytest.mark.parametrize(
    ("params", "allowed"),
    [
        ({"json_schema": json.dumps(DIGITS)}, {str(number) for number in range(10, 100)}),
        ({"regex": "ab{2}"}, {"abb"}),
        ({"choice": pb.Choice(texts=["yes", "no"])}, {"yes", "no"}),
        ({"lark": 'start: "<" start ">" | "x"'}, {"<" * n + "x" + ">" * n for n in range(10)}),
    ],
)
@pytest.mark.parametrize("more", [{"temperature": 0.0}, {"n": 3}, {"beam_width": 2}])
async def test_the_output_keeps_to_each_kind(
    served: Served, params: dict[str, Any], allowed: set[str], more: dict[str, Any]
) -> None:
    answer = await served.generation.GenerateUnary(request_of(**params, **more))
    for result in answer.results:
        if result.finish_reason == pb.FINISH_REASON_STOP:
            assert result.text in allowed
        else:
            assert any(text.startswith(result.text) for text in allowed) or "<" in result.text
    assert len(answer.results) == more.get("n", 1)


async def test_the_list_of_models_says_which_kinds_there_are(served: Served) -> None:
    models = (await served.text.ListModels(text_pb2.ListModelsRequest())).models
    kinds = {model.task: list(model.grammar_kinds) for model in models}
    assert kinds["text-generation"] == ["json_schema", "regex", "choice", "lark"]
    assert kinds["text-classification"] == []


async def test_sampling_parameters_have_grammars_too(served: Served) -> None:
    for params in ({"json_schema": DIGITS}, {"structured_outputs": {"json": DIGITS}}):
        request = oip.ModelInferRequest(model_name="tale")
        add_strings(request, "text_input", "once")
        add_strings(request, "sampling_parameters", json.dumps(params))
        request.inputs.add(
            name="exclude_input_in_output", datatype="BOOL", shape=[1]
        ).contents.bool_contents.append(True)
        (text,) = strings_of(await served.inference.ModelInfer(request))
        assert 10 <= int(text) <= 99


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"regex": "("}, "regex cannot be kept to: "),
        ({"json_schema": "[]"}, "json_schema is no object, expected a JSON schema"),
        ({"choice": pb.Choice()}, "choice has 0 texts, expected 1 to 1024"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos is true, expected false beside regex"),
        ({"regex": "a", "min_tokens": 1}, "min_tokens is 1, expected 0 beside regex"),
        ({"regex": "y|n", "beam_width": 3, "n": 3}, "n is 3, and the grammar has 2 outputs"),
    ],
)
async def test_a_grammar_that_cannot_be_kept_to_is_refused(
    served: Served, params: dict[str, Any], text: str
) -> None:
    call = served.generation.GenerateUnary(request_of(**params))
    status, message = await refusal(call)
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert text in message


async def test_hostile_grammars_and_salts_change_no_other_answer(served: Served) -> None:
    """Sixteen of them at once, beside an answer that is as it was alone."""
    plain = {"temperature": 0.0, "max_tokens": 20}
    alone = await served.generation.GenerateUnary(request_of(**plain))
    hostile: list[dict[str, Any]] = [
        {"regex": "(((.{1,1000}){1,1000}){1,1000})"},
        {"regex": "(.*a.{20})+"},
        {"lark": 'start: a\na: a a | "x" | '},
        {"json_schema": json.dumps({"$ref": "#"})},
        {"json_schema": json.dumps({"type": "string", "minLength": 10**9})},
        {"json_schema": json.dumps({"items": [{"allOf": [{"type": "array"}] * 900}] * 2})},
        {"json_schema": "[" * 60_000},
        {"cache_salt": "s" * 10_000},
    ]
    calls = [served.generation.GenerateUnary(request_of(**each)) for each in hostile * 2]
    beside = served.generation.GenerateUnary(request_of(**plain))
    answers = await asyncio.gather(beside, *calls, return_exceptions=True)
    assert not isinstance(answers[0], BaseException), answers[0]
    assert answers[0].results[0].text == alone.results[0].text
    for answer in answers[1:]:
        if isinstance(answer, grpc.aio.AioRpcError):
            assert answer.code() is grpc.StatusCode.INVALID_ARGUMENT, answer
        else:
            assert isinstance(answer, pb.GenerateResponse), answer
