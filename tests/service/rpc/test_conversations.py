"""`conversation` of the typed Generate: messages, tools and variables as templates read them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from attendant.v1 import generation_pb2 as pb
from grpc import StatusCode

from service.calls.conversation import MAX_DEPTH
from tests.fakes.chats import ENDLESS, PLAIN, rendered, write_chat_model
from tests.fakes.serving import Served, refusal, serving, within_patience, write_models
from tests.fakes.sessions import greedy_text, prompt_ids

pytestmark = pytest.mark.asyncio(loop_scope="module")
CALLS = (
    "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.name }}"
    "{{ c.function.arguments.x }}{{ c.function.arguments | tojson }}{% endfor %}"
    "{{ m.tool_call_id }}{{ m.content is none }}{% endfor %}{{ tools | tojson }}{{ mood }}"
)
USER = pb.ChatMessage(role="user", content="hi")


@asynccontextmanager
async def every_chat(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_models(repository)
    write_chat_model(repository)
    write_chat_model(repository, "calls", CALLS, max_tokens=512)
    write_chat_model(repository, "endless", ENDLESS)
    folder = write_chat_model(repository, "named", "[one]")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("[several]")
    async with serving(repository, **settings) as served:
        yield served


SERVE, SETTINGS = every_chat, {"chat_template_timeout_s": 1.0}


def request_of(
    *messages: pb.ChatMessage, model: str = "talks", **fields: Any
) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        model=model,
        conversation=pb.Conversation(messages=messages, **fields),
        sampling_params=pb.SamplingParams(temperature=0.0, max_tokens=4),
    )


async def answered(served: Served, request: pb.GenerateRequest) -> pb.GenerateResponse:
    answer: pb.GenerateResponse = await within_patience(served.generation.GenerateUnary(request))
    return answer


async def test_an_answer_follows_the_rendered_messages(served: Served) -> None:
    answer = await answered(served, request_of(USER))
    prompt = rendered(("user", "hi"))
    assert answer.results[0].text == greedy_text(prompt, 4)
    assert answer.usage.prompt_tokens == len(prompt_ids(prompt))
    chunks = [chunk async for chunk in served.generation.Generate(request_of(USER))]
    assert "".join(chunk.text for chunk in chunks) == greedy_text(prompt, 4)


async def test_without_the_beginning_of_an_answer(served: Served) -> None:
    answer = await answered(served, request_of(USER, omit_answer_prompt=True))
    assert answer.results[0].text == greedy_text("[user]hi", 4)


async def test_calls_and_tools_are_objects_in_a_template(served: Served) -> None:
    call = pb.ToolCall(id="7", name="f", arguments='{"x": 1}')
    messages = (
        pb.ChatMessage(role="assistant", tool_calls=[call]),
        pb.ChatMessage(role="tool", content="2", tool_call_id="7"),
    )
    request = request_of(
        *messages, model="calls", tools=['{"a": 1}'], template_variables='{"mood": "é"}'
    )
    expected = 'f1{"x": 1}True' + '7False[{"a": 1}]é'
    assert (await answered(served, request)).results[0].text == greedy_text(expected, 4)


async def test_tools_have_a_template_of_their_own_where_there_is_one(served: Served) -> None:
    for tools, expected in (((), "[one]"), (("{}",), "[several]")):
        answer = await answered(served, request_of(USER, model="named", tools=tools))
        assert answer.results[0].text == greedy_text(expected, 4)


@pytest.mark.parametrize(
    ("messages", "fields", "text"),
    [
        ((), {}, "messages is empty, expected at least one message"),
        ((pb.ChatMessage(content="a"),), {}, "messages[0].role is missing"),
        ((USER, pb.ChatMessage(role="user")), {}, "messages[1].content is missing"),
        ((USER,), {"tools": ["[]"]}, "tools[0] is JSON, but not an object"),
        ((USER,), {"template_variables": "{"}, "template_variables is not JSON"),
        (
            (USER,),
            {"template_variables": '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1)},
            f"template_variables is nested more than {MAX_DEPTH} deep",
        ),
        ((USER,), {"template_variables": '{"a": "\\ud800"}'}, ""),
        ((USER,), {"continue_final_message": True}, "expected no beginning of an answer"),
        (
            (pb.ChatMessage(role="assistant", tool_calls=[pb.ToolCall(arguments="x")]),),
            {},
            "messages[0].tool_calls[0].arguments is not JSON",
        ),
        ((pb.ChatMessage(role="user", content="a" * 1_000_001),), {}, "the messages have 10000"),
        ((pb.ChatMessage(role="user", content="a" * 70),), {}, "the model takes 1 to 63"),
    ],
)
async def test_what_is_wrong_is_named(
    served: Served, messages: tuple[Any, ...], fields: dict[str, Any], text: str
) -> None:
    if not text:  # it is not in the prompt, and does no harm
        await answered(served, request_of(*messages, **fields))
        return
    code, details = await refusal(served.generation.GenerateUnary(request_of(*messages, **fields)))
    assert code == StatusCode.INVALID_ARGUMENT
    assert text in details


async def test_a_model_without_a_template_refuses(served: Served) -> None:
    code, details = await refusal(served.generation.GenerateUnary(request_of(USER, model="tale")))
    assert code == StatusCode.INVALID_ARGUMENT
    assert details == (
        "model 'tale' has no chat template: send the conversation as one text "
        "(/v1/completions), or put chat_template.jinja into the model's version folder"
    )


async def test_a_conversation_at_the_bound_of_its_template_is_an_error_of_the_messages(
    served: Served,
) -> None:
    request = request_of(USER, model="endless")
    code, details = await refusal(served.generation.GenerateUnary(request))
    assert code == StatusCode.INVALID_ARGUMENT
    assert details == (
        "the chat template did not render the messages in 1 s and 512 MiB, which are the limits "
        "(--chat-template-timeout-s)"
    )


async def test_unloading_a_model_ends_its_process(tmp_path: Path) -> None:
    async with every_chat(tmp_path) as served:
        process = served.app.repository.find("talks").chat._process  # type: ignore[attr-defined]
        assert process.pid is not None
        await within_patience(served.app.stop())
        assert process.pid is None


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("chat_template.jinja", "{% if %}", "the chat template cannot be read: line 1: "),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: expected an object"),
        ("tokenizer_config.json", '{"chat_template": 1}', "chat_template is neither a text nor"),
        ("tokenizer_config.json", '{"chat_template": [1]}', "chat_template is neither a text nor"),
    ],
)
async def test_a_model_whose_template_cannot_be_read_is_not_loaded(
    tmp_path: Path, name: str, content: str, text: str
) -> None:
    write_models(tmp_path)
    folder = write_chat_model(tmp_path, "broken")
    (folder / "chat_template.jinja").unlink()
    (folder / name).write_text(content)
    async with serving(tmp_path) as served:
        rows = {row.name: row for row in await served.app.repository.index()}
        assert text in rows["broken"].reason


async def test_templates_come_from_the_tokenizers_configuration_too(tmp_path: Path) -> None:
    """By name or alone, with the special tokens that they write; the file of its own wins."""
    folder = write_chat_model(tmp_path)
    (folder / "chat_template.jinja").unlink()
    texts = [{"name": "default", "template": "{{ bos_token }}a"}, {"name": "x", "template": "b"}]
    config = {"chat_template": texts, "bos_token": {"content": "<|endoftext|>"}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    async with serving(tmp_path) as served:
        answer = await answered(served, request_of(USER))
        assert answer.usage.prompt_tokens == 2, "the template's special token, and a letter"
    (folder / "chat_template.jinja").write_text(PLAIN)
    async with serving(tmp_path) as served:
        answer = await answered(served, request_of(USER))
        assert answer.results[0].text == greedy_text(rendered(("user", "hi")), 4)
