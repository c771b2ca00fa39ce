"""Generated texts in the shape of Hugging Face's text generation server, whole and streamed."""

import json
from typing import Any

import pytest

from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, within_patience
from tests.fakes.sessions import greedy_text, prompt_ids
from tests.service.http.huggingface.test_pipelines import post, posted

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATH = "/models/tale"


async def stream(served: Served, **fields: Any) -> Answer:
    return await within_patience(ask(served, "POST", PATH, {"stream": True, **fields}))


async def streamed(served: Served, **fields: Any) -> list[Any]:
    answer = await stream(served, **fields)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return events_of(answer)


def events_of(answer: Answer) -> list[Any]:
    *events, rest = answer.body.decode().split("\n\n")
    assert rest == ""
    return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.mark.parametrize("path", [PATH, "/pipeline/text-generation/tale"])
async def test_the_likeliest_tokens_are_chosen_unless_it_samples(served: Served, path: str) -> None:
    parameters = {"max_new_tokens": 10}
    expected = greedy_text("once", 10)
    found = await posted(served, path, inputs="once", parameters=parameters)
    assert found == [{"generated_text": expected}]
    whole = await posted(
        served, path, inputs="once", parameters={**parameters, "return_full_text": True}
    )
    assert whole == [{"generated_text": "once" + expected}]


async def test_several_prompts_are_lists(served: Served) -> None:
    found = await posted(
        served, PATH, inputs=["once", "a"], parameters={"max_new_tokens": 3, "best_of": 1}
    )
    assert [[each["generated_text"] for each in outputs] for outputs in found] == [
        [greedy_text("once", 3)],
        [greedy_text("a", 3)],
    ]


async def test_details_have_each_token(served: Served) -> None:
    parameters = {"max_new_tokens": 4, "details": True, "top_n_tokens": 2, "seed": 7}
    (found,) = await posted(served, PATH, inputs="once", parameters=parameters)
    details = found["details"]
    assert details["finish_reason"] == "length"
    assert details["generated_tokens"] == len(details["tokens"]) == 4
    assert (details["seed"], details["prefill"]) == (7, [])
    assert "".join(token["text"] for token in details["tokens"]) == found["generated_text"]
    assert [len(top) for top in details["top_tokens"]] == [2] * 4
    for token, top in zip(details["tokens"], details["top_tokens"], strict=True):
        assert token["logprob"] < 0
        assert not token["special"]
        assert top[0]["logprob"] >= top[1]["logprob"]
        assert top[0]["id"] == token["id"]


async def test_details_of_the_prompt_have_its_tokens(served: Served) -> None:
    parameters = {"max_new_tokens": 1, "details": True, "decoder_input_details": True}
    (found,) = await posted(served, PATH, inputs="once", parameters=parameters)
    prefill = found["details"]["prefill"]
    assert [token["id"] for token in prefill] == prompt_ids("once")
    assert "".join(token["text"] for token in prefill) == "once"
    assert prefill[0]["logprob"] is None
    assert all(token["logprob"] < 0 for token in prefill[1:])


async def test_a_stop_text_ends_the_output_before_it(served: Served) -> None:
    text = greedy_text("once", 10)
    parameters = {"max_new_tokens": 10, "details": True, "stop": [text[2:4]]}
    (found,) = await posted(served, PATH, inputs="once", parameters=parameters)
    assert found["generated_text"] == text[: text.index(text[2:4])]
    assert found["details"]["finish_reason"] == "stop_sequence"


async def test_a_seed_samples_the_same_and_the_best_of_several_is_one_of_them(
    served: Served,
) -> None:
    sampled = {"max_new_tokens": 8, "do_sample": True, "temperature": 1.5, "seed": 3}
    several = {**sampled, "num_return_sequences": 4}
    outputs = await posted(served, PATH, inputs="once", parameters=several)
    assert len(outputs) == 4
    assert await posted(served, PATH, inputs="once", parameters=several) == outputs
    best = await posted(served, PATH, inputs="once", parameters={**sampled, "best_of": 4})
    assert len(best) == 1
    assert best[0] in outputs


async def test_beams_are_searched(served: Served) -> None:
    parameters = {"max_new_tokens": 4, "num_beams": 3}
    (found,) = await posted(served, PATH, inputs="once", parameters=parameters)
    assert found["generated_text"]


async def test_a_stream_has_an_event_for_each_token_and_the_text_at_its_end(
    served: Served,
) -> None:
    parameters = {"max_new_tokens": 10, "details": True, "top_n_tokens": 1}
    events = await streamed(served, inputs="once", parameters=parameters)
    expected = greedy_text("once", 10)
    assert [event["index"] for event in events] == list(range(1, 11))
    assert "".join(event["token"]["text"] for event in events) == expected
    assert [event["generated_text"] for event in events] == [None] * 9 + [expected]
    assert [event["details"] for event in events[:-1]] == [None] * 9
    assert events[-1]["details"] == {
        "finish_reason": "length",
        "generated_tokens": 10,
        "input_length": len(prompt_ids("once")),
        "seed": None,
    }
    assert all(event["top_tokens"][0]["id"] == event["token"]["id"] for event in events)


async def test_a_network_that_writes_at_once_answers_whole_and_streamed(served: Served) -> None:
    whole = await posted(served, "/models/writes", inputs="win prize")
    text = whole[0]["generated_text"]
    assert whole == [{"generated_text": text, "translation_text": text}]
    for task, key in (
        ("translation", "translation_text"),
        ("text2text-generation", "generated_text"),
    ):
        named = await posted(served, f"/pipeline/{task}/writes", inputs="win prize")
        assert named == [{key: text}]
    answer = await post(served, "/models/writes", inputs="win prize", stream=True)
    events = [
        json.loads(event.removeprefix("data: "))
        for event in answer.body.decode().split("\n\n")
        if event
    ]
    assert "".join(event["token"]["text"] for event in events) == text
    assert events[-1]["generated_text"] == text


async def test_a_prompt_is_cut_to_its_last_tokens(served: Served) -> None:
    cut = {"truncate": 4, "max_new_tokens": 3}
    for nested in (cut, {"truncate": 4.0, "generate_parameters": {"max_new_tokens": 3}}):
        (found,) = await posted(served, PATH, inputs="at once", parameters=nested)
        assert found["generated_text"] == greedy_text("once", 3)
    refused = await post(served, "/models/writes", inputs="win", parameters={"truncate": 4})
    assert refused.json["error"].startswith("truncate is set, and model 'writes' reads symbols")


async def test_nested_parameters_count_too(served: Served) -> None:
    nested = {"generate_parameters": {"max_new_tokens": 3}}
    (found,) = await posted(served, PATH, inputs="once", parameters=nested)
    assert found["generated_text"] == greedy_text("once", 3)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"truncate": 0}, "parameters.truncate is out of range, expected a whole number of"),
        ({"watermark": True}, "watermark is not supported"),
        ({"typical_p": 0.5}, "typical_p is not supported"),
        ({"grammar": {"type": "json"}}, "grammar has other fields or another type, expected type"),
        ({"grammar": {"type": "regex", "value": ""}}, "grammar is empty or no text"),
        ({"adapter_id": "a"}, "adapter_id is not supported"),
        ({"decoder_input_details": True}, "decoder_input_details is true, expected details"),
        ({"src_lang": "en"}, "src_lang is not supported"),
        ({"top_n_tokens": 51}, "top_n_tokens is 51, expected 0 to 50"),
        ({"top_k": -2}, "top_k is -2, expected 0 to 2147483647"),
        ({"max_new_tokens": -1}, "max_new_tokens is -1, expected 0 to 1048576"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0, expected 1 to 1048576"),
        ({"best_of": 2, "num_return_sequences": 3}, "best_of is 2, expected at least"),
        (
            {"num_beams": 2, "num_return_sequences": 3},
            "num_return_sequences is 3, expected at most num_beams, which is 2",
        ),
        ({"generate_parameters": {"max_new_tokens": "a"}}, "generate_parameters.max_new_"),
        ({"temperature": "hot"}, "parameters.temperature is a text, expected a number or null"),
        ({"temperature": 101}, "temperature is 101"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(
    served: Served, parameters: dict[str, Any], text: str
) -> None:
    for is_stream in (False, True):
        answer = await post(served, PATH, inputs="once", parameters=parameters, stream=is_stream)
        assert (answer.status, list(answer.json)) == (400, ["error"])
        if not (is_stream and {"best_of", "num_return_sequences"} & set(parameters)):
            assert answer.json["error"].startswith(text)


async def test_a_grammar_bounds_the_output(served: Served) -> None:
    pytest.importorskip("llguidance")
    for kind, value in (("regex", "ab{3}"), ("json", {"const": "abb"})):
        parameters = {"grammar": {"type": kind, "value": value}}
        (found,) = await posted(served, PATH, inputs="once", parameters=parameters)
        assert found["generated_text"] in ("abbb", '"abb"')


async def test_what_is_harmless_is_accepted(served: Served) -> None:
    harmless = {"watermark": False, "typical_p": 1.0, "max_new_tokens": 1, "unknown": 3}
    await posted(served, PATH, inputs="once", parameters=harmless, options={"use_cache": False})


async def test_a_stream_is_of_one_prompt_and_one_output(served: Served) -> None:
    two = await stream(served, inputs=["a", "b"])
    assert two.json == {"error": "inputs has 2 texts, a stream is of 1"}
    best = await stream(served, inputs="a", parameters={"best_of": 2})
    assert best.json == {"error": "best_of is more than 1, expected stream to be false"}
