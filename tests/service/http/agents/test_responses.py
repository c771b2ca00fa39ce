"""`/v1/responses`: items in and out, whole and as numbered events, and what it refuses."""

from typing import Any

import pytest

from tests.fakes.agents import (
    CHAT_BEGINNING,
    CHAT_TOOLS,
    FUNCTION,
    SAID,
    THOUGHT,
    WRITTEN,
    Script,
    agents,
    events_of,
    post,
)
from tests.fakes.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVE: Any = agents
PATHS = ["/v1/responses", "/openai/v1/responses", "/models/talks/v1/responses"]
SUM = {"type": "function", **FUNCTION}
ASKED: dict[str, Any] = {"model": "talks", "input": "hi", "max_output_tokens": 300}
REQUIRED = {
    *("id", "object", "created_at", "error", "incomplete_details", "instructions", "model"),
    *("tools", "output", "parallel_tool_calls", "metadata", "tool_choice", "temperature"),
    *("top_p", "status", "text", "usage", "truncation", "reasoning", "store"),
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(monkeypatch)


async def answered(served: Served, **fields: Any) -> dict[str, Any]:
    answer = await post(served, PATHS[0], **ASKED | fields)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


async def refusal(served: Served, **fields: Any) -> dict[str, Any]:
    answer = await post(served, PATHS[0], **ASKED | fields)
    assert answer.status == 400, answer.body
    error: dict[str, Any] = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def said(item: dict[str, Any]) -> str:
    (part,) = item["content"]
    text: str = part["text"]
    return text


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_has_all_that_the_specification_requires(
    served: Served, script: Script, path: str
) -> None:
    found = (await post(served, path, **ASKED, metadata={"a": "b"})).json
    assert set(found) >= REQUIRED
    assert (found["object"], found["status"], found["error"]) == ("response", "completed", None)
    assert found["metadata"] == {"a": "b"}
    (item,) = found["output"]
    assert item.pop("id").startswith("msg_")
    part = {"type": "output_text", "text": SAID, "annotations": [], "logprobs": []}
    message = {"type": "message", "role": "assistant", "status": "completed", "content": [part]}
    assert item == message
    usage = found["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (len("[user]hi[a]"), len(SAID))
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


async def test_thoughts_text_and_calls_are_items_in_this_order(
    served: Served, script: Script
) -> None:
    script.text = WRITTEN
    found = await answered(
        served, model="thinks", tools=[SUM], include=["reasoning.encrypted_content"]
    )
    thoughts, text, call = found["output"]
    assert (thoughts["type"], said(thoughts)) == ("reasoning", THOUGHT)
    assert thoughts["encrypted_content"] == THOUGHT
    assert thoughts["summary"] == []
    assert (text["type"], said(text)) == ("message", SAID)
    assert (call["type"], call["name"]) == ("function_call", "sum")
    assert call["arguments"] == '{"a": [1, 2]}'
    assert found["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
    assert found["status"] == "completed"


async def test_a_budget_is_of_thoughts_and_a_wrong_one_is_refused_by_its_name(
    served: Served, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.text = WRITTEN
    error = await refusal(served, model="thinks", reasoning={"max_tokens": -2})
    assert error["param"] == "reasoning.max_tokens"
    monkeypatch.undo()
    found = await answered(
        served, model="thinks", reasoning={"max_tokens": 3}, max_output_tokens=40
    )
    assert found["output"][0]["type"] == "reasoning"
    assert len(said(found["output"][0])) <= 3


async def test_events_build_the_whole_response(served: Served, script: Script) -> None:
    script.text = WRITTEN
    body = ASKED | {"model": "thinks", "tools": [SUM], "stream": True}
    events = events_of(await post(served, PATHS[0], **body))
    assert all(name == value["type"] for name, value in events)
    assert [value["sequence_number"] for _, value in events] == list(range(len(events)))
    names = [name for name, _ in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert events[0][1]["response"]["output"] == []
    assert names[-1] == "response.completed"
    whole = events[-1][1]["response"]
    items: list[dict[str, Any]] = []
    texts: dict[int, str] = {}
    for name, value in events[2:-1]:
        kind = name.removeprefix("response.")
        if kind == "output_item.added":
            assert value["output_index"] == len(items)
            assert value["item"]["status"] == "in_progress"
            items.append(value["item"])
        elif kind.endswith(".delta"):
            place = value["output_index"]
            assert value["item_id"] == items[place]["id"]
            texts[place] = texts.get(place, "") + value["delta"]
        elif kind == "output_item.done":
            assert value["item"] == whole["output"][value["output_index"]]
        elif kind in ("output_text.done", "reasoning_text.done"):
            assert value["text"] == texts[value["output_index"]]
        elif kind == "function_call_arguments.done":
            assert value["arguments"] == texts[value["output_index"]]
    assert texts == {0: THOUGHT, 1: SAID, 2: '{"a": [1, 2]}'}
    per_item = names.count("response.output_item.added"), names.count("response.output_item.done")
    assert per_item == (3, 3)
    assert names.count("response.content_part.added") == 2
    assert names.count("response.content_part.done") == 2


async def test_an_answer_that_is_cut_is_incomplete(served: Served, script: Script) -> None:
    found = await answered(served, max_output_tokens=2)
    assert found["status"] == "incomplete"
    assert found["incomplete_details"] == {"reason": "max_output_tokens"}
    assert found["output"][0]["status"] == "incomplete"
    events = events_of(
        await post(served, PATHS[0], **ASKED | {"max_output_tokens": 2}, stream=True)
    )
    assert events[-1][0] == "response.incomplete"


async def test_items_are_turns_of_the_conversation(served: Served, script: Script) -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "add"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "hm"},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "So.", "annotations": []}],
        },
        {"type": "function_call", "call_id": "c", "name": "sum", "arguments": '{"a": [1]}'},
        {"type": "function_call", "call_id": "d", "name": "sum", "arguments": '{"a": [2]}'},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {
            "type": "function_call_output",
            "call_id": "d",
            "output": [{"type": "input_text", "text": "2"}],
        },
        {"type": "item_reference", "id": "rs_9"},
        {"role": "developer", "content": "short"},
    ]
    found = await answered(served, input=items, instructions="Be kind.", tools=[SUM])
    chat = {
        "model": "talks",
        "tools": CHAT_TOOLS,
        "messages": [
            *CHAT_BEGINNING,
            {
                "role": "assistant",
                "content": "So.",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "c", "function": {"name": "sum", "arguments": '{"a": [1]}'}},
                    {"id": "d", "function": {"name": "sum", "arguments": '{"a": [2]}'}},
                ],
            },
            {"role": "tool", "content": "1", "tool_call_id": "c"},
            {"role": "tool", "content": "2", "tool_call_id": "d"},
            {"role": "developer", "content": "short"},
        ],
    }
    expected = await post(served, "/tokenize", **chat)
    assert found["usage"]["input_tokens"] == expected.json["count"]


async def test_tools_that_are_no_functions_are_left_out_and_echoed(
    served: Served, script: Script
) -> None:
    tools = [{"type": "web_search", "x": 1}, {"type": "namespace", "name": "n", "tools": []}, SUM]
    answer = await post(served, PATHS[0], **ASKED | {"tools": tools})
    assert answer.status == 200
    assert answer.headers["x-attendant-left-out"] == "tools[0], tools[1]"
    assert answer.json["tools"] == tools


async def test_allowed_tools_are_those_that_are_declared_to_the_model(
    served: Served, script: Script
) -> None:
    other = SUM | {"name": "other"}
    allowed = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "sum"}],
    }
    some = await answered(served, tools=[SUM, other], tool_choice=allowed)
    one = await answered(served, tools=[SUM])
    assert some["usage"]["input_tokens"] == one["usage"]["input_tokens"]
    error = await refusal(served, tools=[other, SUM, SUM], tool_choice=allowed)
    assert error["message"].startswith("tools[2].name is 'sum', expected another")


async def test_log_probabilities_are_of_the_tokens_of_the_text(
    served: Served, script: Script
) -> None:
    wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    (item,) = (await answered(served, **wanted))["output"]
    told = item["content"][0]["logprobs"]
    assert "".join(each["token"] for each in told) == SAID
    assert {len(each["top_logprobs"]) for each in told} == {2}
    events = events_of(await post(served, PATHS[0], **ASKED | wanted, stream=True))
    streamed = [
        each for n, value in events if n.endswith("text.delta") for each in value["logprobs"]
    ]
    assert [each["token"] for each in streamed] == [each["token"] for each in told]
    assert (await answered(served, top_logprobs=0))["output"][0]["content"][0]["logprobs"] == []


async def test_log_probabilities_of_text_that_may_begin_a_call_come_with_it(
    served: Served, script: Script
) -> None:
    script.text = "a <tool_c b"
    wanted = {"include": ["message.output_text.logprobs"], "tools": [SUM], "stream": True}
    events = events_of(await post(served, PATHS[0], **ASKED | wanted))
    (item,) = events[-1][1]["response"]["output"]
    (part,) = item["content"]
    assert "".join(each["token"] for each in part["logprobs"]) == part["text"] == script.text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": []}, "input is empty"),
        ({"input": [{"role": "odd", "content": "a"}]}, "input[0].role is 'odd', expected"),
        ({"input": [{"role": "user"}]}, "input[0].content is missing"),
        ({"input": [{"type": "odd"}]}, "input[0].type is not supported: it is 'odd'"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type is not supported: it is 'input_image'",
        ),
        (
            {"input": [{"type": "item_reference", "id": "msg_1"}]},
            "input[0].type is not supported: it is 'item_reference', and nothing is kept",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "a", "name": "b", "arguments": "{"}]},
            "input[0].arguments is not JSON",
        ),
        ({"previous_response_id": "resp_1"}, "previous_response_id is not supported: nothing"),
        ({"background": True}, "background is not supported"),
        ({"truncation": "auto"}, "truncation is not supported"),
        ({"tools": [{"name": "a"}]}, "tools[0]: Object missing required field `type`"),
        ({"tools": [SUM, SUM]}, "tools[1].name is 'sum', expected another"),
        ({"tools": [SUM], "tool_choice": {"type": "odd"}}, "tool_choice is not supported"),
        (
            {"tools": [SUM], "tool_choice": {"type": "allowed_tools", "tools": 5}},
            "tool_choice.tools names no function of tools",
        ),
        (
            {"tools": [SUM], "tool_choice": {"type": "function"}},
            "tool_choice is not supported: it is {'type': 'function'}, expected",
        ),
        ({"text": {"format": {"type": "odd"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema is missing"),
        ({"max_output_tokens": 0, "temperature": -1}, "temperature is -1"),
        ({"top_logprobs": 99}, "top_logprobs is 99, expected 0 to 20"),
    ],
)
async def test_what_is_wrong_is_told_in_the_words_of_the_body(
    served: Served, fields: dict[str, Any], words: str
) -> None:
    assert (await refusal(served, **fields))["message"].startswith(words)


async def test_a_prompt_that_is_too_long_has_the_code_that_clients_read(served: Served) -> None:
    assert (await refusal(served, input="a" * 2_000))["code"] == "context_length_exceeded"


async def test_a_form_of_the_answer_is_kept(served: Served) -> None:
    form = {"type": "json_schema", "name": "a", "schema": {"const": {"a": 1}}, "strict": True}
    (item,) = (await answered(served, text={"format": form}))["output"]
    assert said(item) == '{"a": 1}'


async def test_values_of_include_are_known_or_refused_by_name(served: Served) -> None:
    answer = await post(
        served, "/v1/responses", model="talks", input="hi", include=["web_search_call.results"]
    )
    assert answer.status == 200
    answer = await post(served, "/v1/responses", model="talks", input="hi", include=["odd"])
    assert answer.status == 400
    assert answer.json["error"]["message"].startswith("include[0] is 'odd', expected one of ")
