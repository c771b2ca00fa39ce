"""`litellm`: completions, chats, Responses and Messages, functions, embeddings, and errors."""

import asyncio
import json
import os
from typing import Any

import litellm

BASE = f"{os.environ['ATTENDANT_URL']}/v1"
SERVER: dict[str, Any] = {"api_base": BASE, "api_key": "none"}
GREEDY: dict[str, Any] = {
    "model": "text-completion-openai/tiny-gpt",
    "prompt": "The function",
    "temperature": 0,
    "max_tokens": 12,
    **SERVER,
}
WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
SAID = "The file is written."
TEXTS = ["win a prize", "lunch"]


def check_completions() -> None:
    answer = litellm.text_completion(**GREEDY)
    whole = answer.choices[0].text
    assert whole
    assert answer.usage.completion_tokens > 0
    pieces = litellm.text_completion(stream=True, **GREEDY)
    assert "".join(piece.choices[0].text or "" for piece in pieces) == whole
    assert asyncio.run(litellm.atext_completion(**GREEDY)).choices[0].text == whole


def check_chats() -> None:
    fields: dict[str, Any] = {
        "model": "openai/tiny-chat",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0,
        "max_tokens": 12,
        **SERVER,
    }
    answer = litellm.completion(**fields)
    whole = answer.choices[0].message.content
    assert answer.usage.completion_tokens > 0
    pieces = litellm.completion(stream=True, **fields)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole
    assert asyncio.run(litellm.acompletion(**fields)).choices[0].message.content == whole


def check_functions() -> None:
    """The model calls a function by itself, over each API, and answers behind its result."""
    bases = {"openai/agent": BASE, "anthropic/agent": os.environ["ATTENDANT_URL"]}
    for model, base in bases.items():
        fields: dict[str, Any] = {
            "model": model,
            "api_base": base,
            "api_key": "none",
            "max_tokens": 64,
            "tools": [{"type": "function", "function": WEATHER}],
        }
        messages: list[Any] = [{"role": "user", "content": "Weather?"}]
        called = litellm.completion(messages=messages, **fields).choices[0]
        assert called.finish_reason == "tool_calls"
        (call,) = called.message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Ghent"}
        result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
        messages += [called.message, result]
        assert litellm.completion(messages=messages, **fields).choices[0].message.content == SAID
        pieces = litellm.completion(messages=messages, stream=True, **fields)
        assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == SAID


def check_responses() -> None:
    fields: dict[str, Any] = {
        "model": "openai/agent",
        "tools": [{"type": "function", **WEATHER}],
        **SERVER,
    }
    asked: list[Any] = [{"role": "user", "content": "Weather?"}]
    (call,) = litellm.responses(input=asked, **fields).output
    assert json.loads(call.arguments) == {"city": "Ghent"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    turn = [*asked, call.model_dump(), result]
    (message,) = litellm.responses(input=turn, **fields).output
    assert message.content[0].text == SAID
    events = [event.type for event in litellm.responses(input=turn, stream=True, **fields)]
    assert events[-1] == "response.completed"


def check_embeddings() -> None:
    answer = litellm.embedding(
        model="openai/tiny-embed", input=TEXTS, encoding_format="float", **SERVER
    )
    assert len(answer.data) == len(TEXTS)
    assert all(isinstance(number, float) for number in answer.data[0]["embedding"])


def check_errors() -> None:
    try:
        litellm.text_completion(**GREEDY | {"model": "text-completion-openai/absent"})
    except litellm.exceptions.NotFoundError:
        pass
    else:
        raise AssertionError("a model that is absent answered")


if __name__ == "__main__":
    check_completions()
    check_chats()
    check_functions()
    check_responses()
    check_embeddings()
    check_errors()
