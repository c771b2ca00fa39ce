"""Fields of chats and completions as other servers' clients spell them, and what they change."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.chats import PLAIN, rendered, write_chat_model
from tests.fakes.every_task import every_session, write_every_model
from tests.fakes.http import ask
from tests.fakes.serving import Served, serving, within_patience
from tests.fakes.sessions import END_ID, greedy_text, prompt_ids
from tests.service.rpc.test_prompt_reading import begin_with_end

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "hi"}
HI = rendered(("user", "hi"))
BASE: dict[str, dict[str, Any]] = {
    CHAT: {"model": "talks", "messages": [USER], "temperature": 0, "max_tokens": 8},
    TEXT: {"model": "talks", "prompt": HI, "temperature": 0, "max_tokens": 8},
}
# Its template tells what it reads.
READER = (
    "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}"
    "{{ reasoning_effort }}{{ documents or '' }}{{ enable_thinking }}"
)
WRITTEN = greedy_text(HI, 8)
NEW = next(place for place in range(2, 8) if WRITTEN.index(WRITTEN[place]) == place)


@asynccontextmanager
async def every_chat(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_every_model(repository)
    write_chat_model(repository)
    begin_with_end(write_chat_model(repository, "begins"))
    write_chat_model(repository, "reads", READER)
    write_chat_model(repository, "long", PLAIN, max_tokens=400)
    async with serving(repository, every_session(), **settings) as served:
        yield served


SERVE = every_chat


async def answered(served: Served, path: str, **fields: Any) -> Any:
    answer = await within_patience(ask(served, "POST", path, BASE[path] | fields))
    assert answer.status == 200, answer.body
    return answer.json


async def text_of(served: Served, path: str, **fields: Any) -> str:
    (choice,) = (await answered(served, path, **fields))["choices"]
    return str(choice["message"]["content"] if path == CHAT else choice["text"])


async def events_of(served: Served, path: str, **fields: Any) -> list[Any]:
    body = BASE[path] | fields | {"stream": True}
    answer = await within_patience(ask(served, "POST", path, body))
    assert answer.status == 200, answer.body
    events = answer.body.decode().split("\n\n")[:-2]
    return [json.loads(event.removeprefix("data: ")) for event in events]


async def error_of(served: Served, path: str, **fields: Any) -> Any:
    answer = await within_patience(ask(served, "POST", path, BASE[path] | fields))
    assert answer.status == 400, answer.body
    return answer.json["error"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_numbers_are_taken_as_clients_of_any_language_write_them(
    served: Served, path: str
) -> None:
    assert await text_of(served, path, max_tokens=5.0) == WRITTEN[:5]
    assert await text_of(served, path, max_tokens=None, n_predict=5) == WRITTEN[:5]
    fields: dict[str, Any]
    for fields in ({"temperature": 2.0, "top_p": 0}, {"top_p": 0.0, "temperature": None}):
        assert await text_of(served, path, **fields) == WRITTEN
    sampled = {"temperature": 1.0, "seed": -5}
    assert await text_of(served, path, **sampled) == await text_of(served, path, **sampled)
    for fields in ({"n": 2}, {"n": 2.0}, {"n_cmpl": 2}):
        choices = (await answered(served, path, **fields))["choices"]
        assert len({json.dumps(choice | {"index": 0}) for choice in choices}) == 1
        assert len(choices) == 2
    error = await error_of(served, path, max_tokens=5.5)
    assert error["message"] == "max_tokens is a number, expected a whole number"
    both = await error_of(served, path, n_predict=5)
    assert both["message"] == "n_predict is set beside max_tokens, expected one of them"


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_what_ended_a_text_is_told_and_kept_on_request(served: Served, path: str) -> None:
    token_id = ord(WRITTEN[NEW])
    (choice,) = (await answered(served, path, stop_token_ids=[token_id]))["choices"]
    assert choice["stop_reason"] == token_id  # a number
    *_, last = await events_of(served, path, stop_token_ids=[token_id])
    assert last["choices"][0]["stop_reason"] == token_id
    stop = WRITTEN[2:4]
    for name in ("include_stop_str_in_output", "no_stop_trim"):
        assert await text_of(served, path, stop=stop, **{name: True}) == WRITTEN[:4]
        assert await text_of(served, path, stop=stop, **{name: False}) == WRITTEN[:2]
    word = WRITTEN[1:3]
    assert word not in await text_of(served, path, bad_words=[word])
    shown = {"logit_bias": {str(END_ID): 100}, "ignore_eos": True, "max_tokens": 2}
    assert await text_of(served, path, **shown, skip_special_tokens=False) == "<|endoftext|>" * 2
    assert await text_of(served, path, **shown) == ""


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_the_tokens_of_a_prompt_are_told_on_request(served: Served, path: str) -> None:
    for name in ("return_token_ids", "return_prompt_token_ids"):
        answer = await answered(served, path, **{name: True})
        told = answer if path == CHAT else answer["choices"][0]
        assert told["prompt_token_ids"] == prompt_ids(HI)
        first, *others = await events_of(served, path, **{name: True})
        told = first if path == CHAT else first["choices"][0]
        assert told["prompt_token_ids"] == prompt_ids(HI)
        for event in others:
            told = event if path == CHAT else event["choices"][0]
            assert not told.get("prompt_token_ids")
    cut = {"truncate_prompt_tokens": 6, "return_token_ids": True}
    for side, kept in ((None, prompt_ids(HI)[-6:]), ("right", prompt_ids(HI)[:6])):
        answer = await answered(served, path, **cut, truncation_side=side)
        told = answer if path == CHAT else answer["choices"][0]
        assert told["prompt_token_ids"] == kept
        assert answer["usage"]["prompt_tokens"] == 6
    whole = await answered(served, path, truncate_prompt_tokens=-1, max_tokens=60)
    assert whole["usage"]["prompt_tokens"] == 4


async def test_special_tokens_are_added_to_a_prompt_unless_it_says_otherwise(
    served: Served,
) -> None:
    asked = {"model": "begins", "prompt": "once", "return_token_ids": True}
    for value, expected in ((None, [END_ID]), (True, [END_ID]), (False, [])):
        (choice,) = (await answered(served, TEXT, **asked, add_special_tokens=value))["choices"]
        tokens = {"model": "begins", "prompt": "once", "add_special_tokens": value}
        found = (await within_patience(ask(served, "POST", "/tokenize", tokens))).json["tokens"]
        assert choice["prompt_token_ids"] == [*expected, *prompt_ids("once")] == found


async def test_tokens_in_chats_are_told_by_their_ids(served: Served) -> None:
    fields = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": True}
    (choice,) = (await answered(served, CHAT, **fields))["choices"]
    content = choice["logprobs"]["content"]
    assert [each["token"] for each in content] == [f"token_id:{ord(sign)}" for sign in WRITTEN]
    assert all(top["token"].startswith("token_id:") for top in content[0]["top_logprobs"])


@pytest.mark.parametrize("path", [CHAT, TEXT])
async def test_a_prompt_is_counted_from_the_first_event_on(served: Served, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = await events_of(served, path, stream_options=options)
    assert {event["usage"]["prompt_tokens"] for event in events} == {len(prompt_ids(HI))}


async def test_a_whole_context_is_scored_where_nothing_is_generated(served: Served) -> None:
    ids = [97 + place % 26 for place in range(64)]
    fields = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}
    (choice,) = (await answered(served, TEXT, **fields))["choices"]
    assert len(choice["logprobs"]["token_logprobs"]) == 64


async def test_an_answer_without_a_bound_is_what_fits_where_the_model_chats(
    served: Served,
) -> None:
    """400 tokens of context. Completions of a model that does not chat have OpenAI's 16."""
    endless = {"model": "long", "max_tokens": None, "ignore_eos": True}
    for path in (CHAT, TEXT):
        usage = (await answered(served, path, **endless))["usage"]
        assert usage["total_tokens"] == 400
    usage = (await answered(served, TEXT, **endless | {"model": "tale"}))["usage"]
    assert usage["completion_tokens"] == 16


async def test_a_server_may_bound_answers_that_name_no_bound(tmp_path: Path) -> None:
    async with every_chat(tmp_path, http_port=0, default_max_tokens=7) as served:
        endless = {"max_tokens": None, "ignore_eos": True}
        for path in (CHAT, TEXT):
            usage = (await answered(served, path, **endless))["usage"]
            assert usage["completion_tokens"] == 7


async def test_arguments_in_a_history_are_texts_objects_or_nothing(served: Served) -> None:
    texts = set()
    arguments: Any
    for arguments in ('{"a": 1}', {"a": 1}):
        call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
        messages = [USER, {"role": "assistant", "content": "a", "tool_calls": [call]}, USER]
        texts.add(await text_of(served, CHAT, messages=messages))
    assert len(texts) == 1
    for arguments in (None, {}, "", "{}"):
        call = {"id": "1", "function": {"name": "f", "arguments": arguments}}
        messages = [USER, {"role": "assistant", "content": "a", "tool_calls": [call]}, USER]
        assert await text_of(served, CHAT, messages=messages) in texts


async def told(served: Served, **fields: Any) -> str:
    """The prompt that the template makes."""
    asked = {"model": "reads", "return_token_ids": True, "max_tokens": 1}
    answer = await answered(served, CHAT, **asked, **fields)
    return bytes(answer["prompt_token_ids"]).decode()


async def test_what_a_template_reads_is_given_to_it(served: Served) -> None:
    assert await told(served) == "hi"
    assert await told(served, reasoning_effort="high") == "hihigh"
    assert await told(served, reasoning={"effort": "low"}) == "hilow"
    assert await told(served, documents=[{"a": "b"}]) == "hi[{'a': 'b'}]"
    assert await told(served, reasoning_effort="none") == "hinoneFalse"
    assert await told(served, thinking={"type": "disabled"}) == "hinoneFalse"
    assert await told(served, thinking={"type": "enabled"}) == "hiTrue"
    for name in ("reasoning", "reasoning_content"):
        history = [{"role": "assistant", "content": "a", name: "thought"}, USER]
        assert await told(served, messages=history) == "thoughtahi"


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"reasoning_effort": "high"}, "reasoning_effort"), ({"documents": [{}]}, "documents")],
)
async def test_what_a_template_does_not_read_is_refused(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    error = await error_of(served, CHAT, **fields)
    assert error["param"] == param
    assert error["message"] == (
        f"{param} is not supported: the model's chat template does not read it"
    )
    for effort in ("none", "medium"):  # of a model that does not think
        assert await text_of(served, CHAT, reasoning_effort=effort) == WRITTEN


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"regex": "a{3}b"}, "aaab"),
        ({"json_schema": {"const": 7}}, "7"),
        ({"json_schema": '{"const": 7}'}, "7"),
        ({"grammar": 'start: "x" "y"'}, "xy"),
        ({"guided_grammar": 'start: "x" "y"'}, "xy"),
        ({"structured_outputs": {"regex": "ab"}}, "ab"),
        ({"grammar": "", "regex": "ab", "json_schema": ""}, "ab"),
    ],
)
async def test_a_form_is_kept_to_however_it_is_spelled(
    served: Served, path: str, fields: dict[str, Any], expected: str
) -> None:
    pytest.importorskip("llguidance")
    assert await text_of(served, path, **fields) == expected


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("name", ["grammar", "guided_grammar", "ebnf"])
async def test_grammars_of_llama_cpp_are_refused_by_the_field(
    served: Served, path: str, name: str
) -> None:
    error = await error_of(served, path, **{name: 'root ::= "yes" | "no"'})
    assert error["param"] == name
    assert error["message"].startswith(f"{name} is not supported: ")
    two = await error_of(served, path, regex="a", json_schema={})
    assert "expected one of them" in two["message"]
