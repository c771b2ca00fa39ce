"""`/v1/chat/completions`: answers to conversations, whole and streamed, and every refusal."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attendant.v1 import generation_pb2 as pb
from attendant.v1 import text_pb2

from service.serving.generative_model import GenerativeModel
from tests.fakes.chats import ENDLESS, FAMILIES, TOOLS, rendered, write_chat_model
from tests.fakes.every_task import every_session, write_every_model
from tests.fakes.http import Answer, ask, port_of
from tests.fakes.serving import Served, eventually, serving, within_patience
from tests.fakes.sessions import greedy_text

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATHS = [
    "/v1/chat/completions",
    "/openai/v1/chat/completions",
    "/models/talks/v1/chat/completions",
]
USER = {"role": "user", "content": "hi"}
GREEDY: dict[str, Any] = {
    "model": "talks",
    "messages": [USER],
    "temperature": 0,
    "max_completion_tokens": 6,
}
SUM = {"type": "function", "function": {"name": "sum", "parameters": {"type": "object"}}}
CALLED: dict[str, Any] = {"model": "calls", "tools": [SUM], "max_completion_tokens": 200}
WRITTEN = '<tool_call>\n{"name": "sum", "arguments": {"a": [1, 2]}}\n</tool_call>'
ANSWER = greedy_text(rendered(("user", "hi")), 6)


BROKEN = {"name": "sum", "arguments": "{"}  # a call whose arguments are no JSON


@asynccontextmanager
async def every_chat(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_every_model(repository)
    write_chat_model(repository)
    write_chat_model(repository, "strict", FAMILIES["gemma"])
    write_chat_model(repository, "endless", ENDLESS)
    write_chat_model(repository, "calls", TOOLS, max_tokens=1_024)
    async with serving(repository, every_session(), **settings) as served:
        yield served


SERVE, SETTINGS = every_chat, {"chat_template_timeout_s": 1.0}


async def chat(served: Served, path: str = PATHS[0], **fields: Any) -> Answer:
    return await within_patience(ask(served, "POST", path, fields))


async def answered(served: Served, **fields: Any) -> dict[str, Any]:
    answer = await chat(served, **GREEDY | fields)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


async def contents(served: Served, **fields: Any) -> list[str]:
    found = await answered(served, **fields)
    return [choice["message"]["content"] for choice in found["choices"]]


async def streamed(served: Served, **fields: Any) -> list[Any]:
    answer = await chat(served, **GREEDY | fields, stream=True)
    assert answer.status == 200, answer.body
    *events, done, rest = answer.body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


async def refusal(served: Served, **fields: Any) -> dict[str, Any]:
    answer = await chat(served, **GREEDY | fields)
    assert answer.status == 400, answer.body
    error: dict[str, Any] = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize("path", PATHS)
async def test_an_answer_is_what_follows_the_rendered_conversation(
    served: Served, path: str
) -> None:
    answer = (await chat(served, path, **GREEDY)).json
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["model"] == "talks"
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": ANSWER, "refusal": None},
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
        }
    ]
    num_prompt = len(rendered(("user", "hi")))
    counts = {
        "prompt_tokens": num_prompt,
        "completion_tokens": 6,
        "total_tokens": num_prompt + 6,
    }
    assert {name: answer["usage"][name] for name in counts} == counts


async def test_it_is_the_answer_of_a_completion_of_the_rendered_text(served: Served) -> None:
    fields = {"model": "talks", "prompt": rendered(("user", "hi")), "temperature": 0}
    answer = await within_patience(
        ask(served, "POST", "/v1/completions", fields | {"max_tokens": 6})
    )
    assert answer.json["choices"][0]["text"] == ANSWER


async def test_all_turns_of_a_conversation_are_read(served: Served) -> None:
    turns = [("system", "be"), ("user", "a"), ("assistant", "b"), ("user", "c")]
    messages = [{"role": role, "content": content} for role, content in turns]
    assert await contents(served, messages=messages) == [greedy_text(rendered(*turns), 6)]


async def test_parts_of_a_content_are_lines_of_it(served: Served) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for role in ("system", "user", "assistant"):
        expected = [greedy_text(rendered((role, "a\nb")), 6)]
        assert await contents(served, messages=[{"role": role, "content": parts}]) == expected


async def test_a_developer_is_the_system_where_the_template_knows_none(served: Served) -> None:
    expected = [greedy_text(rendered(("system", "be")), 6)]
    assert await contents(served, messages=[{"role": "developer", "content": "be"}]) == expected


async def test_max_completion_tokens_wins(served: Served) -> None:
    found = await answered(served, max_tokens=3)
    assert found["usage"]["completion_tokens"] == 6
    found = await answered(served, max_tokens=3, max_completion_tokens=None)
    assert found["usage"]["completion_tokens"] == 3


async def test_a_stream_has_the_role_first_then_text_then_the_end(served: Served) -> None:
    events = await streamed(served)
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({(event["id"], event["created"], event["model"]) for event in events}) == 1
    assert all("usage" not in event for event in events)
    (first, *middle, last) = [event["choices"][0] for event in events]
    assert first["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"]["content"] for choice in middle) == ANSWER
    assert last["delta"] == {}
    reasons = [choice["finish_reason"] for choice in (first, *middle, last)]
    assert reasons == [None] * (len(reasons) - 1) + ["length"]


async def test_a_stream_of_several_samples_has_each_of_them_whole(served: Served) -> None:
    fields = {"n": 3, "temperature": 1, "seed": 4}
    whole = await contents(served, **fields)
    events = await streamed(served, **fields)
    for index in range(3):
        choices = [c for e in events for c in e["choices"] if c["index"] == index]
        assert choices[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in choices) == whole[index]
        assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["length"]
    assert len(set(whole)) > 1, "or the order could not be seen"


@pytest.mark.parametrize(
    ("options", "num_usages"), [(None, 0), ({}, 0), ({"include_usage": True}, 1)]
)
async def test_a_stream_tells_usage_if_requested(
    served: Served, options: Any, num_usages: int
) -> None:
    events = await streamed(served, stream_options=options)
    usages = [event["usage"] for event in events if event.get("usage")]
    assert len(usages) == num_usages
    assert all("usage" in event for event in events) == bool(num_usages)
    if num_usages:
        assert events[-1]["choices"] == []
        assert usages[0] == (await answered(served))["usage"] | {
            "prompt_tokens_details": usages[0]["prompt_tokens_details"]
        }


async def test_running_usage_is_in_every_event(served: Served) -> None:
    running = {"continuous_usage_stats": True}
    events = await streamed(served, stream_options=running | {"include_usage": True})
    usages = [event["usage"] for event in events]
    assert {usage["prompt_tokens"] for usage in usages} == {len(rendered(("user", "hi")))}
    counts = [usage["completion_tokens"] for usage in usages]
    assert counts == sorted(counts)
    assert counts[-1] == 6


@pytest.mark.parametrize("included", [{}, {"include_usage": False}, {"include_usage": None}])
async def test_no_event_has_usage_that_was_not_asked_for(served: Served, included: Any) -> None:
    events = await streamed(served, stream_options=included | {"continuous_usage_stats": True})
    assert not any("usage" in event for event in events)


@pytest.mark.parametrize("num_top", [None, 0, 2, 20])
async def test_log_probabilities_are_objects_by_token(served: Served, num_top: int | None) -> None:
    fields = {"logprobs": True, "top_logprobs": num_top}
    (choice,) = (await answered(served, **fields))["choices"]
    tokens = choice["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == ANSWER
    assert bytes(byte for token in tokens for byte in token["bytes"]).decode() == ANSWER
    assert {len(token["top_logprobs"]) for token in tokens} == {num_top or 0}
    assert choice["logprobs"]["refusal"] is None
    events = await streamed(served, **fields)
    found = [c["logprobs"]["content"] for e in events for c in e["choices"] if c["logprobs"]]
    assert [token for content in found for token in content] == tokens
    assert (await answered(served, logprobs=False))["choices"][0]["logprobs"] is None


async def test_bytes_tell_of_a_part_of_a_character(served: Served) -> None:
    (choice,) = (await answered(served, logprobs=True, logit_bias={"195": 100}))["choices"]
    first = choice["logprobs"]["content"][0]
    assert first["bytes"] == [0xC3]
    assert first["token"] == "\ufffd"


async def test_a_stop_text_ends_an_answer(served: Served) -> None:
    (choice,) = (await answered(served, stop=ANSWER[3]))["choices"]
    assert choice["message"]["content"] == ANSWER[:3]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ANSWER[3])


async def test_a_users_text_ends_no_turn(served: Served) -> None:
    """Spelled in a prompt the end of a text is one token; in a message its characters are."""
    said = rendered(("user", "<|endoftext|>"))
    found = await answered(served, messages=[USER | {"content": "<|endoftext|>"}])
    assert found["usage"]["prompt_tokens"] == len(said)
    fields = {"model": "talks", "prompt": said, "max_tokens": 1}
    spelled = await within_patience(ask(served, "POST", "/v1/completions", fields))
    assert spelled.json["usage"]["prompt_tokens"] == len(said) - len("<|endoftext|>") + 1


async def test_the_last_message_may_be_continued(served: Served) -> None:
    messages = [USER, {"role": "assistant", "content": "so"}]
    expected = [greedy_text("[user]hi[assistant]so", 6)]
    fields = {"messages": messages, "add_generation_prompt": False}
    assert await contents(served, **fields, continue_final_message=True) == expected
    assert await contents(served, **fields) == expected


def scripted(served: Served, text: str) -> None:
    served.decoders["calls"].script = text.encode()


async def test_a_call_of_a_function_is_read_from_the_text(served: Served) -> None:
    scripted(served, f"I add.\n{WRITTEN}")
    (choice,) = (await answered(served, **CALLED))["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] == "I add."
    assert choice["finish_reason"] == "tool_calls"
    assert (call["type"], call["function"]["name"]) == ("function", "sum")
    assert json.loads(call["function"]["arguments"]) == {"a": [1, 2]}
    scripted(served, WRITTEN)
    (alone,) = (await answered(served, **CALLED))["choices"]
    assert alone["message"]["content"] is None


async def test_a_stream_has_a_call_as_soon_as_it_is_whole(served: Served) -> None:
    scripted(served, f"I add.\n{WRITTEN}{WRITTEN}")
    events = await streamed(served, **CALLED)
    deltas = [event["choices"][0]["delta"] for event in events]
    assert "".join(delta.get("content") or "" for delta in deltas) == "I add."
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0, 1]
    assert len({call["id"] for call in calls}) == 2
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    single = await streamed(served, **CALLED, parallel_tool_calls=False)
    assert sum(len(event["choices"][0]["delta"].get("tool_calls", ())) for event in single) == 1


async def test_a_call_behind_a_broken_one_is_a_call(served: Served) -> None:
    broken = "<tool_call>\n{'name': 'sum', 'arguments': {}}\n</tool_call>"
    within = json.dumps('{"a": [1, 2]}')
    good = f'<tool_call>\n{{"name": "sum", "arguments": {within}}}\n</tool_call>'
    scripted(served, f"{broken}\n{good}")
    (choice,) = (await answered(served, **CALLED))["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] == broken
    assert json.loads(call["function"]["arguments"]) == {"a": [1, 2]}
    assert choice["finish_reason"] == "tool_calls"


async def test_a_call_that_is_cut_is_a_part_of_it(served: Served) -> None:
    scripted(served, f"I add.\n{WRITTEN}")
    place = len(f"I add.\n{WRITTEN}") - len("]}}\n</tool_call>")
    for fields in ({"max_completion_tokens": place}, {"stop": ", 2"}):
        (choice,) = (await answered(served, **CALLED | fields))["choices"]
        (call,) = choice["message"]["tool_calls"]
        assert choice["message"]["content"] == "I add."
        assert '{"a": [1, 2]'.startswith(call["function"]["arguments"])
        assert choice["finish_reason"] == ("stop" if "stop" in fields else "length")
        events = [event["choices"][0] for event in await streamed(served, **CALLED | fields)]
        assert "tool_call>" not in "".join(e["delta"].get("content") or "" for e in events)
        assert events[-1]["finish_reason"] == choice["finish_reason"]


async def test_the_answer_of_a_tool_is_a_turn(served: Served) -> None:
    """The call as the client sends it back is what the template writes of it."""
    scripted(served, "3")
    function = {"name": "sum", "arguments": '{"a": [1, 2]}'}
    messages = [
        USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "123456789", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "123456789", "content": "3"},
    ]
    found = await answered(served, **CALLED | {"messages": messages})
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": "3", "refusal": None}
    assert choice["finish_reason"] == "stop"
    declared = json.dumps({"type": "function", "function": SUM["function"]})
    call = json.dumps({"name": "sum", "arguments": {"a": [1, 2]}})
    prompt = f"{declared}[user]hi[assistant]<tool_call>{call}</tool_call>[tool]3[a]"
    assert found["usage"]["prompt_tokens"] == len(prompt)


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": []}, {"content": ""}])
async def test_a_turn_without_content_renders_as_nothing(
    served: Served, content: dict[str, Any]
) -> None:
    """Of an assistant and of a tool; other fields that are null are as good as absent."""
    call = {"id": None, "type": None, "function": {"name": "sum", "arguments": "{}"}}
    absent = {"name": None, "tool_calls": None, "refusal": None, "reasoning_content": None}
    messages = [
        {"role": "user", "content": "hi", **absent},
        {"role": "assistant", **content, **absent},
        {"role": "assistant", **content, **absent, "tool_calls": [call]},
        {"role": "tool", **content, **absent, "tool_call_id": None},
    ]
    found = await answered(served, messages=messages)
    prompt = "[user]hi[assistant][assistant][tool][a]"
    assert found["usage"]["prompt_tokens"] == len(prompt)
    assert found["choices"][0]["message"]["content"] == greedy_text(prompt, 6)


async def test_without_a_choice_of_tools_nothing_is_declared_nor_read(served: Served) -> None:
    scripted(served, WRITTEN)
    found = await answered(served, **CALLED, tool_choice="none")
    assert found["choices"][0]["message"]["content"] == WRITTEN
    assert found["usage"]["prompt_tokens"] == len(rendered(("user", "hi")))


async def test_what_changes_nothing_is_ignored(served: Served) -> None:
    ignored = {
        "store": True,
        "metadata": {"a": "b"},
        "service_tier": "auto",
        "user": "u",
        "reasoning_effort": "medium",
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "tools": [],
        "tool_choice": "none",
        "num_ctx": 7,
    }
    assert await contents(served, **ignored) == [ANSWER]
    absent = dict.fromkeys([*ignored, "logprobs", "top_logprobs", "stop", "n", "seed"])
    assert await contents(served, **absent) == [ANSWER]
    tools = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"}
    assert await contents(served, **tools) == [ANSWER]


@pytest.mark.parametrize(
    ("fields", "param", "text"),
    [
        ({"messages": []}, "messages", "messages is empty"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role", "'robot'"),
        ({"messages": [USER, {"role": "user"}]}, "messages[1].content", "is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
            "'image_url', expected 'text' with text beside it",
        ),
        ({"top_logprobs": 2}, "top_logprobs", "expected logprobs to be true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "expected 0 to 20"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "tools[0].function is missing"),
        (
            {"tools": [{"function": {"name": ""}}]},
            "tools[0].function.name",
            "tools[0].function.name is empty",
        ),
        (
            {"messages": [USER, {"role": "assistant", "tool_calls": [{"function": BROKEN}]}]},
            "messages[1].tool_calls[0].function.arguments",
            "messages[1].tool_calls[0].function.arguments is not JSON",
        ),
        (
            {"messages": [USER, {"role": "assistant", "function_call": BROKEN}]},
            "messages[1].function_call.arguments",
            "messages[1].function_call.arguments is not JSON",
        ),
        ({"tools": [SUM, SUM]}, "tools[1].function.name", "is 'sum', expected another than before"),
        ({"tools": [SUM]}, "tools", "the chat template of model 'talks' declares none"),
        ({"modalities": ["text", "audio"]}, "modalities", "the output is text"),
        ({"chat_template": "{{ 1 }}"}, "chat_template", "only the model's own"),
        ({"stream_options": {}}, "stream_options", "expected stream to be true"),
        ({"model": "tale"}, "messages", "has no chat template"),
        ({"messages": [USER | {"content": "a" * 70}]}, "messages", "the prompt has 79 tokens"),
        (
            {"messages": [USER | {"content": "a" * 1_000_001}]},
            "messages",
            "the server takes at most 1000000",
        ),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "max_completion_tokens is 0"),
        ({"temperature": 200}, "temperature", "temperature is 200"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
            "expected add_generation_prompt to be false",
        ),
    ],
)
async def test_a_refusal_names_the_field(
    served: Served, fields: dict[str, Any], param: str, text: str
) -> None:
    error = await refusal(served, **fields)
    assert text in error["message"]
    assert error["param"] == param


async def test_a_model_without_a_template_has_a_code(served: Served) -> None:
    error = await refusal(served, model="tale")
    assert error["code"] == "no_chat_template"
    assert error["message"].endswith("chat_template.jinja into the model's version folder")
    wrong = await refusal(served, model="spam")
    assert wrong["code"] == "wrong_task"
    unknown = await chat(served, **GREEDY | {"model": "nobody"})
    assert unknown.status == 404


async def test_a_model_that_does_not_generate_is_refused_for_its_task(served: Served) -> None:
    error = await refusal(served, model="spam")
    assert (error["code"], error["param"]) == ("wrong_task", "model")
    assert error["message"] == "model 'spam' does text-classification, it cannot generate"


async def test_what_a_template_refuses_is_told_in_its_words(served: Served) -> None:
    messages = [{"role": "system", "content": "be"}, USER]
    error = await refusal(served, model="strict", messages=messages)
    assert "System role not supported" in error["message"]
    assert error["param"] == "messages"


async def test_an_endless_template_is_in_the_way_of_no_other_model(served: Served) -> None:
    """Ten conversations of 1 s each; others are answered meanwhile, and of these clients leave."""
    hostile = [
        asyncio.create_task(ask(served, "POST", PATHS[0], GREEDY | {"model": "endless"}))
        for _ in range(10)
    ]
    model = served.app.repository.find("endless")
    assert isinstance(model, GenerativeModel)
    chats = model.chat
    assert chats is not None, "it has a template"
    await eventually(lambda: chats._num_waiting == 10)
    started_s = time.monotonic()
    assert await contents(served) == [ANSWER]
    assert time.monotonic() - started_s < 5
    first = await within_patience(hostile[0])
    assert first.status == 400
    assert "did not render the messages in 1 s" in first.json["error"]["message"]
    assert first.json["error"]["param"] == "messages"
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)
    await eventually(lambda: chats._num_waiting == 0)


async def test_a_list_of_models_says_which_take_conversations(served: Served) -> None:
    models = (await served.text.ListModels(text_pb2.ListModelsRequest())).models
    assert {m.name for m in models if m.has_chat_template} == {
        "talks",
        "strict",
        "endless",
        "calls",
    }


async def test_hugging_faces_client_chats_whole_and_in_a_stream(served: Served) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    address = f"http://127.0.0.1:{port_of(served)}/models/talks"
    client = hub.InferenceClient(model=address, token="none")  # noqa: S106 - else it looks for one

    def talk(*, stream: bool) -> Any:
        answer = client.chat_completion([USER], max_tokens=6, temperature=0, stream=stream)
        return list(answer) if stream else answer

    whole = await within_patience(asyncio.to_thread(talk, stream=False))
    assert whole.choices[0].message.content == ANSWER
    events = await within_patience(asyncio.to_thread(talk, stream=True))
    assert "".join(event.choices[0].delta.content or "" for event in events) == ANSWER


async def test_the_tokens_of_messages_are_those_of_the_prompt_that_a_chat_has(
    served: Served,
) -> None:
    """With and without the beginning of an answer, and with functions that may be called."""
    messages = [USER, {"role": "assistant", "content": "ho"}, USER]
    counted = (await answered(served, messages=messages))["usage"]["prompt_tokens"]
    fields = {"model": "talks", "messages": messages, "return_token_strs": True}
    tokens = (await chat(served, "/tokenize", **fields)).json
    assert tokens["count"] == len(tokens["tokens"]) == len(tokens["token_strs"]) == counted
    text = (await chat(served, "/detokenize", model="talks", tokens=tokens["tokens"])).json
    roles = ("user", "hi"), ("assistant", "ho"), ("user", "hi")
    assert text["prompt"] == rendered(*roles)
    shorter = (await chat(served, "/tokenize", **fields, add_generation_prompt=False)).json
    assert tokens["tokens"][: shorter["count"]] == shorter["tokens"] != tokens["tokens"]
    longer = (await chat(served, "/tokenize", model="calls", messages=[USER], tools=[SUM])).json
    counted = (await answered(served, **CALLED | {"messages": [USER]}))["usage"]["prompt_tokens"]
    assert longer["count"] == counted


async def test_tokens_of_messages_have_no_place_in_a_text(served: Served) -> None:
    conversation = pb.Conversation(messages=[pb.ChatMessage(role="user", content="hi")])
    request = text_pb2.TokenizeRequest(model="talks", conversation=conversation)
    (found,) = (await served.text.Tokenize(request)).results
    assert {(token.start, token.end) for token in found.tokens} == {(0, 0)}
    assert b"hi" in b"".join(token.token_bytes for token in found.tokens)
    fields = {"model": "talks", "texts": ["a"], "conversation": {"messages": [USER]}}
    answer = await chat(served, "/api/Tokenize", **fields)
    assert answer.status == 400
    assert answer.json["error"].startswith("conversation stands in place of texts")
