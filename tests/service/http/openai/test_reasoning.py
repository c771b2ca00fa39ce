"""Thoughts are told apart from answers: over chats, whole and streamed, and over the typed API."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.grammars.behind import behind_thoughts
from service.serving import generative_model
from tests.fakes.agents import SAID, THOUGHT, as_it_is
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
    async with serving(repository, every_session(), **settings) as served:
        yield served


SERVE: Any = thinkers
SETTINGS: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice of one text is what a model writes, thoughts included."""
    monkeypatch.setattr(generative_model, "behind_thoughts", as_it_is)


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
    assert 0 < told < answer["usage"]["completion_tokens"]


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
    monkeypatch.setattr(generative_model, "behind_thoughts", behind_thoughts)
    assert await message(served, SAID, model="closes") == {"content": SAID}
    biased = {"logit_bias": {str(ord("<")): 100.0}}  # it thinks, and ends what it thinks
    found = await message(served, SAID, **biased)
    assert found["reasoning"]
    assert found["content"] in (None, SAID)
