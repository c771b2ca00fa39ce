"""`anthropic`, synchronous and asynchronous: messages, streams, functions, counts, errors."""

import asyncio
import os
from typing import Any

import anthropic

URL = os.environ["ATTENDANT_URL"]
ASKED: dict[str, Any] = {
    "model": "tiny-calls",
    "max_tokens": 24,
    "extra_body": {"temperature": 0},  # which the newest library has no name for
    "messages": [{"role": "user", "content": "Hello"}],
}
PERSON: dict[str, Any] = {
    "name": "person",
    "description": "Keep a person.",
    "input_schema": {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["age"],
        "additionalProperties": False,
    },
}
FORCED: dict[str, Any] = {
    "tools": [PERSON],
    "tool_choice": {"type": "tool", "name": "person"},
    "max_tokens": 200,
}
NUM_STREAMS = 10


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def check_messages(client: anthropic.Anthropic) -> None:
    """A stream has the text of the whole answer, and its helper builds the same message."""
    whole = client.messages.create(system="Be brief.", **ASKED)
    assert whole.role == "assistant"
    assert whole.stop_reason in ("end_turn", "max_tokens")
    assert whole.usage.output_tokens > 0
    with client.messages.stream(system="Be brief.", **ASKED) as stream:
        text = "".join(stream.text_stream)
        built = stream.get_final_message()
    assert text == text_of(whole) == text_of(built)
    assert built.usage.output_tokens == whole.usage.output_tokens
    kinds = [event.type for event in client.messages.create(stream=True, **ASKED)]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"


def check_functions(client: anthropic.Anthropic) -> None:
    """A call comes whole and streamed, and its result is answered."""
    called = client.messages.create(**ASKED | FORCED)
    assert called.stop_reason == "tool_use"
    (call,) = [block for block in called.content if block.type == "tool_use"]
    assert 0 <= dict(call.input)["age"] <= 150
    with client.messages.stream(**ASKED | FORCED) as stream:
        built = stream.get_final_message()
    assert [dict(block.input) for block in built.content if block.type == "tool_use"] == [
        dict(call.input)
    ]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "kept"}
    messages = [
        *ASKED["messages"],
        {"role": "assistant", "content": called.content},
        {"role": "user", "content": [result]},
    ]
    again = client.messages.create(tools=[PERSON], **ASKED | {"messages": messages})
    assert again.usage.input_tokens > 0


def check_counts(client: anthropic.Anthropic) -> None:
    asked = {name: ASKED[name] for name in ("model", "messages")}
    counted = client.messages.count_tokens(**asked)
    usage = client.messages.create(**ASKED).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def check_errors(client: anthropic.Anthropic) -> None:
    cases: list[tuple[type[Exception], dict[str, Any]]] = [
        (anthropic.NotFoundError, {"model": "none"}),
        (anthropic.BadRequestError, {"extra_body": {"temperature": -1}}),
        (anthropic.BadRequestError, {"messages": [{"role": "user", "content": "a" * 9_000}]}),
    ]
    for kind, fields in cases:
        try:
            client.messages.create(**ASKED | fields)
        except kind as error:
            assert isinstance(error, anthropic.APIStatusError)
            assert error.body
        else:
            raise AssertionError(f"no {kind.__name__} for {list(fields)}")


async def check_many() -> None:
    client = anthropic.AsyncAnthropic(base_url=URL, api_key="none", max_retries=0)
    answers = await asyncio.gather(*(client.messages.create(**ASKED) for _ in range(NUM_STREAMS)))
    assert len({text_of(each) for each in answers}) == 1


if __name__ == "__main__":
    own = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
    check_messages(own)
    check_functions(own)
    check_counts(own)
    check_errors(own)
    asyncio.run(check_many())
