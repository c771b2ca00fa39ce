"""Thoughts are told apart from answers: over chats, whole and streamed, and over the typed API."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.http.shared import peer_tables
from tests.fakes.agents import SAID, THOUGHT, say_as_it_is
from tests.fakes.chats import TOOLS, write_chat_model
from tests.fakes.every_task import every_session
from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, serving, within_patience

pytestmark = pytest.mark.asyncio(loop_scope="module")
# It opens thoughts unless told otherwise, as Qwen's and DeepSeek's do.
THINKS = TOOLS.replace("[a]", "[a]{{ '<think>' if enable_thinking is not false else '' }}")
CLOSES = TOOLS.replace("[a]", "[a]<think></think>")
CALL = '<tool_call>\n{"name": "sum", "arguments": {"a": 1}}\n</tool_call>'
SUM = {"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}}
WRITTEN = f"\n{THOUGHT}\n</think>\n\n{SAID}"
BOTH = {"reasoning": THOUGHT, "reasoning_content": THOUGHT}


@asynccontextmanager
async def thinkers(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_chat_model(repository, "thinks", THINKS, max_tokens=1_024)
    write_chat_model(repository, "closes", CLOSES, max_tokens=1_024)
    chosen = {"reasoning_form": "none", "tool_call_form": "llama"}
    for name in ("chosen", "set"):
        write_chat_model(repository, name, THINKS, max_tokens=1_024, **chosen)
    settings = {"tool_call_form": "set=mistral", "reasoning_form": "set=think"} | settings
    async with serving(repository, every_session(), **settings) as served:
        yield served


SERVE: Any = thinkers
SETTINGS: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice of one text is what a model writes, thoughts included."""
    say_as_it_is(monkeypatch)


async def chat(served: Served, written: str = WRITTEN, **fields: Any) -> Answer:
    body = {
        "model": "thinks",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 300,
        "guided_choice": [written],
    }
    answer = await within_patience(ask(served, "POST", "/v1/chat/completions", body | fields))
    assert answer.status == 200, answer.body
    return answer


async def message(served: Served, written: str = WRITTEN, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = (await chat(served, written, **fields)).json["choices"][0]["message"]
    return {k: v for k, v in found.items() if k not in ("role", "refusal")}


async def test_thoughts_have_both_names_that_clients_read(served: Served) -> None:
    answer = (await chat(served)).json
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": SAID, "refusal": None, **BOTH}
    told = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert told == len(f"\n{THOUGHT}\n</think>".encode())  # a token is a byte
    assert told < answer["usage"]["completion_tokens"]


async def test_a_manifest_chooses_forms_and_a_setting_goes_before_it(served: Served) -> None:
    call = '{"name": "sum", "parameters": {"a": 1}}'
    body: dict[str, Any] = {"tools": [SUM], "parallel_tool_calls": True}
    found = await message(served, model="chosen")
    assert found == {"content": WRITTEN}  # its thoughts are text
    found = await message(served, call, model="chosen", **body)
    assert [each["function"]["name"] for each in found["tool_calls"]] == ["sum"]
    found = await message(served, f"a</think>b[TOOL_CALLS][{call}]", model="set", **body)
    assert (found["reasoning"], found["content"]) == ("a", "b")
    assert [each["function"]["arguments"] for each in found["tool_calls"]] == ['{"a": 1}']


async def test_thoughts_that_are_cut_are_no_answer(served: Served) -> None:
    answer = (await chat(served, max_tokens=4)).json
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] is None
    assert THOUGHT.startswith(choice["message"]["reasoning"])


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"separate_reasoning": False}, {"content": WRITTEN}),
        ({"reasoning_format": "none"}, {"content": WRITTEN}),
        ({"include_reasoning": False}, {"content": SAID}),
        ({"model": "closes"}, {"content": WRITTEN}),
    ],
)
async def test_a_request_says_where_thoughts_are(
    served: Served, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert await message(served, **fields) == expected


async def test_a_model_may_open_thoughts_itself_or_have_none(served: Served) -> None:
    quiet = {"chat_template_kwargs": {"enable_thinking": False}}
    assert await message(served, f"<think>{WRITTEN}", **quiet) == {"content": SAID, **BOTH}
    assert await message(served, SAID, **quiet) == {"content": SAID}


async def test_a_stream_has_thoughts_and_answer_in_deltas_of_their_own(served: Served) -> None:
    answer = await chat(served, stream=True)
    events = answer.body.decode().split("\n\n")[:-2]
    deltas = [json.loads(each.removeprefix("data: "))["choices"][0]["delta"] for each in events]
    assert not [each for each in deltas if each.get("content") and each.get("reasoning")]
    for name, text in {"content": SAID, **BOTH}.items():
        assert "".join(each.get(name) or "" for each in deltas) == text
    assert [each for each in deltas if each.get("reasoning")]


async def test_calls_are_read_behind_thoughts_and_within_those_that_do_not_end(
    served: Served,
) -> None:
    for written in (f"{THOUGHT}</think>{CALL}", f"{THOUGHT}\n{CALL}"):
        found = await message(served, written, tools=[SUM])
        assert [each["function"]["name"] for each in found.pop("tool_calls")] == ["sum"]
        assert found == {"content": None, **BOTH}


async def test_the_typed_api_tells_thoughts_apart_unless_they_are_wanted_in_the_text(
    served: Served,
) -> None:
    call: dict[str, Any] = {
        "model": "thinks",
        "conversation": {"messages": [{"role": "user", "content": "hi"}]},
        "samplingParams": {"maxTokens": 300, "choice": {"texts": [WRITTEN]}},
    }
    (result,) = (await ask(served, "POST", "/api/GenerateUnary", call)).json["results"]
    assert (result["text"], result["reasoning"]) == (SAID, THOUGHT)
    call["reasoningInText"] = True
    (result,) = (await ask(served, "POST", "/api/GenerateUnary", call)).json["results"]
    assert result["text"] == WRITTEN
    assert not result.get("reasoning")


async def test_a_form_is_that_of_the_answer_and_not_of_thoughts(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert await message(served, SAID, model="closes") == {"content": SAID}
    biased = {"logit_bias": {str(ord("<")): 100.0}}  # it thinks, and ends what it thinks
    found = await message(served, SAID, **biased)
    assert found["reasoning"]
    assert found["content"] in (None, SAID)


BUDGETS = [
    *({name: 3} for name in peer_tables.BUDGETS),
    {"reasoning": {"max_tokens": 3}},
    {"thinking": {"type": "enabled", "budget_tokens": 3}},
]


@pytest.mark.parametrize("budget", BUDGETS)
async def test_a_budget_ends_thoughts_and_the_answer_follows(
    served: Served, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any]
) -> None:
    monkeypatch.undo()
    fields = {**budget, "n": 2, "logit_bias": {str(ord("x")): 100.0}}
    answer = (await chat(served, SAID, **fields)).json
    for choice in answer["choices"]:
        assert choice["message"] == {
            "role": "assistant",
            "content": SAID,
            "refusal": None,
            **dict.fromkeys(BOTH, "xxx"),
        }
        assert choice["finish_reason"] == "stop"
    told = answer["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert told >= 2 * (3 + len("</think>"))


async def test_a_budget_of_nothing_is_no_thoughts_beside_tools_and_in_streams(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    none: dict[str, Any] = {"thinking_token_budget": 0, "logit_bias": {str(ord("x")): 100.0}}
    assert await message(served, SAID, **none) == {"content": SAID}
    asked: dict[str, Any] = {"tools": [SUM], "tool_choice": "required", "guided_choice": None}
    found = await message(served, **none, **asked)
    assert {each["function"]["name"] for each in found["tool_calls"]} == {"sum"}
    assert "reasoning" not in found
    answer = await chat(served, SAID, stream=True, **none | {"thinking_token_budget": 2})
    events = answer.body.decode().split("\n\n")[:-2]
    deltas = [json.loads(each.removeprefix("data: "))["choices"][0]["delta"] for each in events]
    assert "".join(each.get("reasoning", "") for each in deltas) == "xx"
    assert "".join(each.get("content", "") for each in deltas) == SAID


async def test_a_budget_that_is_none_changes_nothing_and_a_wrong_one_is_refused(
    served: Served,
) -> None:
    assert await message(served, thinking_token_budget=-1) == {"content": SAID, **BOTH}
    for name in peer_tables.BUDGETS:
        body = {"model": "thinks", "messages": [{"role": "user", "content": "hi"}], name: -2}
        answer = await ask(served, "POST", "/v1/chat/completions", body)
        assert answer.status == 400
        assert answer.json["error"]["message"] == f"{name} is -2, expected 0 to 1048576"
    body |= {"thinking_budget": 3, "reasoning_budget": 3}
    answer = await ask(served, "POST", "/v1/chat/completions", body)
    assert "reasoning_budget is set beside thinking_budget" in answer.json["error"]["message"]


async def test_a_budget_of_a_prompt_that_is_no_conversation_is_refused(served: Served) -> None:
    call = {"model": "thinks", "text": "hi", "samplingParams": {"maxReasoningTokens": 3}}
    answer = await ask(served, "POST", "/api/GenerateUnary", call)
    assert answer.status == 400
    assert "max_reasoning_tokens is 3, expected none beside a prompt" in answer.body.decode()


async def test_a_choice_may_begin_with_a_space_behind_thoughts(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    for text in (" yes", "\n\nyes", "yes"):
        found = await message(served, text, thinking_token_budget=1)
        assert found["content"] == text
