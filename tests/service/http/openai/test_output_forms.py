"""Forms of answers over OpenAI's API: formats, vLLM's fields, and calls that must be made."""

import asyncio
import json
from typing import Any

import jsonschema
import pytest
from attendant.v1 import generation_pb2 as pb

from service.api.calls import Arrival, Calls
from service.errors import InvalidArgument
from service.grammars.form import Grammar
from service.http.status import ENDS
from service.observe.logs import RequestLog
from tests.fakes.grammars import piece_compiler
from tests.fakes.serving import Served
from tests.service.http.openai.test_chat import SERVE, SUM, USER, chat, streamed

pytest.importorskip("llguidance")
pytestmark = pytest.mark.asyncio(loop_scope="module")
__all__ = ["SERVE"]  # the server of the chats
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
NEGATED: dict[str, Any] = {
    "type": "function",
    "function": {"name": "negated", "parameters": {"properties": {"a": {"not": {}}}}},
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON}}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 4}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


async def content(served: Served, **fields: Any) -> str:
    body: dict[str, Any] = {"model": "calls", "messages": [USER], "max_tokens": 200} | fields
    answer = await chat(served, **body)
    assert answer.status == 200, answer.body
    (choice,) = answer.json["choices"]
    assert choice["finish_reason"] == "stop"
    return str(choice["message"]["content"])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_schema_is_kept_to(served: Served, temperature: float) -> None:
    text = await content(served, response_format=FORMAT, temperature=temperature)
    jsonschema.validate(json.loads(text), PERSON)


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"guided_choice": ["yes", "no way"]}, ["yes", "no way"]),
        ({"structured_outputs": {"choice": ["oui", "non"]}}, ["oui", "non"]),
        ({"guided_regex": "a{3}b"}, ["aaab"]),
        ({"structured_outputs": {"grammar": 'start: "x" "y"'}}, ["xy"]),
        ({"guided_json": {"const": [1, "b"]}}, ['[1, "b"]']),
        ({"guided_json": '{"enum": [7]}'}, ["7"]),
    ],
)
async def test_forms_of_vllm_are_kept_to(
    served: Served, fields: dict[str, Any], allowed: list[str]
) -> None:
    assert await content(served, **fields) in allowed


async def test_a_schema_beside_json_object_is_kept_to(served: Served) -> None:
    """It is where llama.cpp and older versions of instructor have it."""
    form = {"type": "json_object", "schema": PERSON}
    text = await content(served, response_format=form, temperature=1.0)
    jsonschema.validate(json.loads(text), PERSON)


async def test_completions_keep_to_a_form_too(served: Served) -> None:
    body: dict[str, Any] = {
        "model": "calls",
        "prompt": "hi",
        "response_format": FORMAT,
        "max_tokens": 200,
    }
    answer = await chat(served, "/v1/completions", **body)
    jsonschema.validate(json.loads(answer.json["choices"][0]["text"]), PERSON)


@pytest.mark.parametrize(
    "choice", ["required", "any", {"type": "function", "function": {"name": "weather"}}]
)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_call_that_is_required_is_made(
    served: Served, choice: object, is_stream: bool
) -> None:
    tools = [WEATHER] if choice in ("required", "any") else [SUM, WEATHER]
    fields: dict[str, Any] = {
        "model": "calls",
        "messages": [USER],
        "tools": tools,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_completion_tokens": 200,
        "temperature": 0.0,
    }
    if is_stream:
        parts = [event["choices"][0] for event in await streamed(served, **fields)]
        calls = [call for part in parts for call in part["delta"].get("tool_calls", ())]
        reason = parts[-1]["finish_reason"]
    else:
        answer = await chat(served, **fields)
        assert answer.status == 200, answer.body
        (found,) = answer.json["choices"]
        calls, reason = found["message"]["tool_calls"], found["finish_reason"]
    (call,) = calls
    assert call["function"]["name"] == "weather"
    arguments = json.loads(call["function"]["arguments"])
    jsonschema.validate(arguments, WEATHER["function"]["parameters"])
    assert reason == "tool_calls"


@pytest.mark.parametrize("end", [{}, {"stop": ['"city']}])
async def test_a_required_call_that_is_cut_is_a_part_of_it(
    served: Served, end: dict[str, Any]
) -> None:
    """At each number of tokens: never markup, and no other reason than the one it was cut for."""
    fields: dict[str, Any] = {
        "model": "calls",
        "messages": [USER],
        "tools": [SUM, WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "temperature": 0.0,
        **end,
    }
    whole = '{"city": "'
    for num_tokens in (1, 3, 8, 20, 30, 40, 50, 60) if not end else (200,):
        fields["max_completion_tokens"] = num_tokens
        choice = (await chat(served, **fields)).json["choices"][0]
        parts = [event["choices"][0] for event in await streamed(served, **fields)]
        (call,) = choice["message"]["tool_calls"]
        (delta,) = [call for part in parts for call in part["delta"].get("tool_calls", ())]
        assert choice["message"]["content"] is None
        assert not any(part["delta"].get("content") for part in parts)
        assert call["function"] == delta["function"]
        assert call["function"]["name"] == "weather"
        arguments = call["function"]["arguments"]
        assert whole.startswith(arguments) or arguments.startswith(whole)
        reason = "stop" if end else "length"
        assert choice["finish_reason"] == parts[-1]["finish_reason"] == reason


async def test_a_strict_call_that_is_free_to_be_made_keeps_to_its_schema(served: Served) -> None:
    fields: dict[str, Any] = {"model": "calls", "messages": [USER], "tools": [SUM, WEATHER]}
    answer = await chat(served, **fields, n=4, temperature=1.0, seed=2, max_tokens=60)
    assert answer.status == 200, answer.body
    for choice in answer.json["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            assert call["function"]["name"] in ("sum", "weather")
            if call["function"]["name"] == "weather":
                arguments = json.loads(call["function"]["arguments"])
                jsonschema.validate(arguments, WEATHER["function"]["parameters"])


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        (
            {"response_format": {"type": "json_schema"}},
            "response_format",
            "response_format.json_schema.schema is missing",
        ),
        (
            {"response_format": {"type": "text", "schema": PERSON}},
            "response_format",
            "response_format.schema is set beside the type 'text', expected json_object",
        ),
        (
            {"response_format": {"type": "structural_tag"}},
            "response_format",
            "its type is 'structural_tag', expected text, json_object or json_schema",
        ),
        (
            {"guided_json": {"not": {"type": "string"}}},
            "guided_json",
            'guided_json cannot be kept to: Unimplemented keys: ["not"]',
        ),
        (
            {"structured_outputs": {"json": {"type": "integer", "x-guidance": {}}}},
            "structured_outputs",
            "structured_outputs has x-guidance",
        ),
        ({"guided_regex": "(?=a)b"}, "guided_regex", "look-around"),
        (
            {"guided_regex": "a", "guided_choice": ["a"]},
            "guided_choice",
            "guided_choice is set beside guided_regex",
        ),
        ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs", "structural_tag"),
        ({"guided_json": {"multipleOf": 1009}}, "guided_json", "expected at most 1000"),
        ({"guided_regex": "a", "min_tokens": 2}, "min_tokens", "expected 0 beside regex"),
        ({"guided_whitespace_pattern": " *", "guided_json": {}}, "guided_whitespace_pattern", ""),
        ({"tool_choice": "required"}, "tool_choice", "expected functions in tools"),
        (
            {"tools": [SUM], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
            "is the function 'f', expected one of tools",
        ),
        (
            {"tools": [SUM], "tool_choice": "banana"},
            "tool_choice",
            "it is 'banana', expected auto, none, required",
        ),
        (
            {"tools": [SUM, NEGATED], "tool_choice": "required"},
            "tools[1].function.parameters",
            'tools[1].function.parameters cannot be kept to: Unimplemented keys: ["not"]',
        ),
        (
            {
                "tools": [SUM, NEGATED],
                "tool_choice": {"type": "function", "function": {"name": "negated"}},
                "stream": True,
            },
            "tools[1].function.parameters",
            'tools[1].function.parameters cannot be kept to: Unimplemented keys: ["not"]',
        ),
        (
            {"tools": [SUM, NEGATED | {"function": NEGATED["function"] | {"strict": True}}]},
            "tools[1].function.parameters",
            'tools[1].function.parameters cannot be kept to: Unimplemented keys: ["not"]',
        ),
        (
            {"guided_grammar": 'start: %json {"not": {}}', "tools": [SUM]},
            "guided_grammar",
            "guided_grammar cannot be kept to: at 1(8): failed to compile JSON schema",
        ),
        (
            {"tools": [SUM, WEATHER], "guided_regex": "a"},
            "guided_regex",
            "guided_regex is set beside tools[1].function.strict",
        ),
        (
            {"tools": [SUM], "tool_choice": "required", "guided_regex": "a"},
            "guided_regex",
            "guided_regex is set beside tool_choice",
        ),
    ],
)
async def test_a_form_that_cannot_be_kept_to_is_refused(
    served: Served, fields: dict[str, Any], param: str, text: str
) -> None:
    body: dict[str, Any] = {"model": "calls", "messages": [USER]} | fields
    answer = await chat(served, **body)
    assert answer.status == 400, answer.body
    assert answer.json["error"]["param"] == param
    assert text in answer.json["error"]["message"]


async def test_a_form_that_does_not_fit_ends_for_its_length(served: Served) -> None:
    body: dict[str, Any] = {"model": "calls", "messages": [USER], "response_format": FORMAT}
    answer = await chat(served, **body, max_tokens=5)
    assert answer.json["choices"][0]["finish_reason"] == "length"


SECRET = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "format": "password", "maxLength": 3},
        "b": {"type": "string", "format": "uri-reference", "maxLength": 3},
        "c": {"type": "integer", "format": "int64\r\nx: y", "minimum": 0, "maximum": 9},
        "d": {"type": "string", "format": "date"},
    },
    "required": ["a", "b", "c", "d"],
}
NAMED = "format=password, format=uri-reference, format=int64%0d%0ax:%20y"


@pytest.mark.parametrize("is_stream", [False, True])
async def test_formats_that_are_not_enforced_are_taken_and_named(
    served: Served, is_stream: bool
) -> None:
    """In a header of the answer, whatever characters they have."""
    body: dict[str, Any] = {"model": "calls", "messages": [USER], "max_tokens": 200}
    form = {"type": "json_schema", "json_schema": {"name": "secret", "schema": SECRET}}
    answer = await chat(served, **body, response_format=form, stream=is_stream)
    assert answer.status == 200, answer.body
    assert answer.headers["x-attendant-not-enforced"] == NAMED
    plain = await chat(served, **body, response_format=FORMAT, stream=is_stream)
    assert "x-attendant-not-enforced" not in plain.headers


async def test_formats_of_functions_that_must_be_called_are_named_too(served: Served) -> None:
    tool = {"type": "function", "function": {"name": "keep", "parameters": SECRET}}
    body: dict[str, Any] = {"model": "calls", "messages": [USER], "max_tokens": 200}
    answer = await chat(served, **body, tools=[tool], tool_choice="required")
    assert answer.status == 200, answer.body
    assert answer.headers["x-attendant-not-enforced"] == NAMED
    (call,) = answer.json["choices"][0]["message"]["tool_calls"][:1]
    assert {*json.loads(call["function"]["arguments"])} == {"a", "b", "c", "d"}


async def test_a_weak_model_writes_no_other_properties(served: Served) -> None:
    """Where `additionalProperties` is left out, an object of the listed ones ends."""
    schema = {"properties": {"a": {"type": "boolean"}}, "required": ["a"], "type": "object"}
    for seed in range(4):
        text = await content(served, guided_json=schema, temperature=1.5, seed=seed, max_tokens=40)
        assert json.loads(text).keys() == {"a"}


async def test_a_discriminated_union_is_answered_with_its_kind(served: Served) -> None:
    def branch(name: str) -> dict[str, Any]:
        kind = {"const": name, "default": name, "type": "string"}
        return {"type": "object", "properties": {"kind": kind, "n": {"type": "boolean"}}}

    union = {"oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}
    schema = union | {"$defs": {"Cat": branch("cat"), "Dog": branch("dog")}}
    answer = json.loads(await content(served, guided_json=schema))
    assert answer["kind"] in ("cat", "dog")


async def test_a_failed_expression_is_told_to_its_client_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The request log says that a form was refused, and has no part of it."""
    caplog.set_level("INFO", "attendant.requests")
    calls = Calls(RequestLog(is_on=True))
    message = pb.GenerateRequest(model="calls")
    arrival = Arrival("http", ENDS, (), lambda: None)
    with (
        pytest.raises(InvalidArgument, match=r"4929-secret\("),
        calls.watch("/a.B/Generate", message, arrival),
    ):
        piece_compiler().compile(Grammar.of("regex", "4929-secret("))
    (record,) = caplog.records
    assert vars(record)["call"].error == "regex cannot be kept to [reason left out]"


async def test_costly_forms_stop_no_other_call(served: Served) -> None:
    """Counted repetition in four forms, and a number that ends the library: 400 each, and on."""
    costly: list[dict[str, Any]] = [
        {"guided_regex": "((a{999}){999}){999}"},
        {"guided_grammar": "start: /((b{999}){999}){999}/"},
        {"guided_json": {"type": "string", "pattern": "^((c{999}){999}){999}$"}},
        {"guided_json": {"type": "integer", "allOf": [{"minimum": -1e30}, {"maximum": -1e25}]}},
        {"guided_json": {"const": -(2**63)}},
    ]
    body: dict[str, Any] = {"model": "calls", "messages": [USER]}
    answers = await asyncio.gather(*(chat(served, **body, **fields) for fields in costly))
    for answer in answers:
        assert answer.status == 400, answer.body
        assert "cannot be kept to" in answer.json["error"]["message"]
    assert await content(served, guided_choice=["yes"]) == "yes"
