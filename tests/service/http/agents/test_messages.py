"""`/v1/messages`: blocks in and out, whole and streamed, counts, and refusals in its own words."""

from typing import Any

import pytest

from tests.fakes.agents import (
    CALL,
    CHAT_BEGINNING,
    CHAT_TOOLS,
    SAID,
    SCHEMA,
    THOUGHT,
    WRITTEN,
    Script,
    agents,
    events_of,
    post,
)
from tests.fakes.http import ask
from tests.fakes.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
AT = "messages[0].content[0]"
SERVE: Any = agents
PATHS = ["/v1/messages", "/openai/v1/messages", "/models/talks/v1/messages"]
SUM = {"name": "sum", "description": "adds", "input_schema": SCHEMA}
ASKED: dict[str, Any] = {
    "model": "talks",
    "max_tokens": 300,
    "messages": [{"role": "user", "content": "hi"}],
}
CALLED = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "add"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "So."},
                {"type": "tool_use", "id": "toolu_a", "name": "sum", "input": {"a": [1]}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "and?"},
                {"type": "tool_result", "tool_use_id": "toolu_a", "content": "1"},
            ],
        },
    ]
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


async def answered(served: Served, **fields: Any) -> dict[str, Any]:
    answer = await post(served, PATHS[0], **ASKED | fields)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


async def refusal(served: Served, status: int = 400, **fields: Any) -> dict[str, str]:
    answer = await post(served, PATHS[0], **ASKED | fields)
    assert answer.status == status, answer.body
    assert set(answer.json) == {"type", "error"}
    assert answer.json["type"] == "error"
    error: dict[str, str] = answer.json["error"]
    return error


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_is_a_message_of_blocks(served: Served, script: Script, path: str) -> None:
    found = (await post(served, path, **ASKED)).json
    assert found.pop("id").startswith("msg_")
    num_prompt = len("[user]hi[a]")
    counted = found["usage"]
    assert counted["input_tokens"] + counted["cache_read_input_tokens"] == num_prompt
    assert counted["output_tokens"] == len(SAID)
    assert found | {"usage": 0} == {
        "type": "message",
        "role": "assistant",
        "model": "talks",
        "content": [{"type": "text", "text": SAID}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": 0,
    }


async def test_thoughts_text_and_calls_are_blocks_in_this_order(
    served: Served, script: Script
) -> None:
    script.text = WRITTEN
    found = await answered(served, model="thinks", tools=[SUM])
    thinking, text, call = found["content"]
    assert thinking == {"type": "thinking", "thinking": THOUGHT, "signature": ""}
    assert text == {"type": "text", "text": SAID}
    assert call.pop("id").startswith("toolu_")
    assert call == {"type": "tool_use", "name": "sum", "input": {"a": [1, 2]}}
    assert found["stop_reason"] == "tool_use"


async def test_events_build_the_whole_answer(served: Served, script: Script) -> None:
    script.text = WRITTEN
    answer = await post(
        served, PATHS[0], **ASKED | {"model": "thinks", "tools": [SUM], "stream": True}
    )
    events = events_of(answer)
    assert all(name == value["type"] for name, value in events)
    assert [name for name, _ in events[:2]] == ["message_start", "ping"]
    assert [name for name, _ in events[-2:]] == ["message_delta", "message_stop"]
    assert events[0][1]["message"]["content"] == []
    assert events[0][1]["message"]["usage"]["input_tokens"] > 0
    blocks: list[dict[str, Any]] = []
    parts: dict[int, str] = {}
    is_open = False
    for name, value in events[2:-2]:
        assert is_open == (name != "content_block_start")
        is_open = name != "content_block_stop"
        if name == "content_block_start":
            assert value["index"] == len(blocks)
            blocks.append(value["content_block"])
        elif name == "content_block_delta":
            delta = value["delta"]
            kind = delta.pop("type").removesuffix("_delta")
            (written,) = delta.values()
            if kind == "input_json":
                parts[value["index"]] = parts.get(value["index"], "") + written
            else:
                field = kind if kind in ("text", "thinking", "signature") else ""
                blocks[value["index"]][field] += written
    assert blocks[0] == {"type": "thinking", "thinking": THOUGHT, "signature": ""}
    assert blocks[1] == {"type": "text", "text": SAID}
    assert blocks[2]["name"] == "sum"
    assert parts == {2: '{"a": [1, 2]}'}
    assert events[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2][1]["usage"]["output_tokens"] > 0


async def test_why_an_answer_ended(served: Served, script: Script) -> None:
    assert (await answered(served, max_tokens=2))["stop_reason"] == "max_tokens"
    stopped = await answered(served, stop_sequences=["s"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "s")
    script.text = CALL
    cut = await answered(served, tools=[SUM], max_tokens=40)
    assert cut["stop_reason"] == "max_tokens"
    assert cut["content"] == []


async def test_blocks_are_turns_of_the_conversation(served: Served) -> None:
    body = CALLED | {"model": "talks", "tools": [SUM], "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cch=1"},
        {"type": "text", "text": "Be kind."},
    ]}  # fmt: skip
    counted = await post(served, f"{PATHS[0]}/count_tokens", **body)
    chat = {
        "model": "talks",
        "tools": CHAT_TOOLS,
        "messages": [
            *CHAT_BEGINNING,
            {
                "role": "assistant",
                "content": "So.",
                "reasoning_content": "hm",
                "tool_calls": [{"id": "a", "function": {"name": "sum", "arguments": {"a": [1]}}}],
            },
            {"role": "tool", "content": "1", "tool_call_id": "a"},
            {"role": "user", "content": "and?"},
        ],
    }
    expected = await post(served, "/tokenize", **chat)
    assert counted.json == {"input_tokens": expected.json["count"]}


async def test_a_last_message_of_the_assistant_is_continued(served: Served, script: Script) -> None:
    messages = [*ASKED["messages"], {"role": "assistant", "content": "It is"}]
    found = await answered(served, messages=messages)
    num_prompt = found["usage"]["input_tokens"] + found["usage"]["cache_read_input_tokens"]
    assert num_prompt == len("[user]hi[assistant]It is")


async def test_choices_of_functions(served: Served, script: Script) -> None:
    script.text = SAID
    for choice in ({"type": "any"}, {"type": "tool", "name": "sum"}):
        found = await answered(served, tools=[SUM], tool_choice=choice, max_tokens=200)
        assert {block["name"] for block in found["content"]} == {"sum"}
    kept = await answered(served, tools=[SUM], tool_choice={"type": "none"})
    assert kept["content"] == [{"type": "text", "text": SAID}]


async def test_tools_of_the_provider_are_left_out_and_named(served: Served, script: Script) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}, SUM]
    answer = await post(served, PATHS[0], **ASKED | {"tools": tools})
    assert answer.status == 200
    assert answer.headers["x-attendant-left-out"] == "tools[0]"
    chosen = await refusal(served, tools=tools, tool_choice={"type": "tool", "name": "web_search"})
    assert chosen["message"].startswith("tool_choice.name is 'web_search', expected")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"messages": [{"role": "odd", "content": "a"}]}, "messages[0].role is 'odd', expected"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0].type is not supported: it is 'image'",
        ),
        *(
            ({"messages": [{"role": "assistant", "content": [block]}]}, f"{AT}.{words}")
            for block, words in (
                (
                    {"type": "text"},
                    "text is missing, expected one, as a block of the type text has",
                ),
                ({"type": "thinking"}, "thinking is missing"),
                ({"type": "redacted_thinking", "data": ""}, "data is empty"),
                ({"type": "tool_use", "id": "", "name": "f", "input": {}}, "id is empty"),
                ({"type": "tool_use", "id": "a", "input": {}}, "name is missing"),
                ({"type": "tool_use", "id": "a", "name": "f"}, "input is missing"),
            )
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            f"{AT}.tool_use_id is missing",
        ),
        ({"messages": []}, "messages is empty"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": -1}, "temperature is -1"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"thinking": {"type": "odd"}}, "thinking.type is 'odd'"),
        (
            {"thinking": {"type": "enabled", "budget_tokens": -1}},
            "thinking.budget_tokens is -1, expected 0 or more",
        ),
        ({"tool_choice": {"type": "odd"}}, "tool_choice.type is 'odd'"),
        ({"tools": [{"name": ""}]}, "tools[0].name is empty"),
        ({"tools": [SUM, SUM]}, "tools[1].name is 'sum', expected another"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers is not supported"),
        ({"output_config": {"format": {"type": "odd"}}}, "output_config.format.type is 'odd'"),
        (
            {"output_config": {"format": {"type": "json_schema"}}},
            "output_config.format.schema is missing",
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "odd"}}}},
            "output_config.format",
        ),
        (
            {"messages": [{"role": "user", "content": "a" * 2_000}]},
            "prompt is too long: 2009 tokens > 1023 maximum",
        ),
    ],
)
async def test_what_is_wrong_is_told_in_the_words_of_the_body(
    served: Served, fields: dict[str, Any], said: str
) -> None:
    error = await refusal(served, **fields)
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(said)


async def test_errors_have_the_types_of_the_api(served: Served) -> None:
    assert (await refusal(served, 404, model="none"))["type"] == "not_found_error"
    assert (await ask(served, "GET", "/v1/messages")).status == 405


async def test_a_form_of_the_answer_is_kept(served: Served) -> None:
    schema = {"const": {"a": 1}}
    found = await answered(
        served,
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": schema}},
    )
    assert found["content"] == [{"type": "text", "text": '{"a": 1}'}]
