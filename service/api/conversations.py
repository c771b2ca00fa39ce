"""Conversations from messages, as chat templates read them: plain values in OpenAI's shape."""

import json
from typing import Any

from attendant.v1 import generation_pb2 as pb

from service.calls.conversation import Conversation
from service.errors import InvalidArgument

MAX_DEPTH = 64  # of JSON in a conversation


def conversation_of(message: pb.Conversation) -> Conversation:
    """Raises `InvalidArgument` for JSON that is no object, and for what `Conversation` refuses."""
    return Conversation(
        messages=[_message(each, place) for place, each in enumerate(message.messages)],
        tools=[_object(text, f"tools[{place}]") for place, text in enumerate(message.tools)],
        variables=_object(message.template_variables or "{}", "template_variables"),
        needed_variables=list(message.needed_variables),
        has_answer_prompt=not message.omit_answer_prompt,
        continues_last=message.continue_final_message,
    )


def conversation_in(message: Any) -> Conversation | None:  # noqa: ANN401 - of several kinds
    """The conversation of a request's message, None where it has none. Raises `InvalidArgument`."""
    return conversation_of(message.conversation) if message.HasField("conversation") else None


def _message(message: pb.ChatMessage, place: int) -> dict[str, Any]:
    if not message.role:
        raise InvalidArgument(f"messages[{place}].role is missing", f"messages[{place}].role")
    has_content = message.HasField("content")
    values: dict[str, Any] = {
        "role": message.role,
        "content": message.content if has_content else None,
    }
    for name in ("name", "tool_call_id", "reasoning_content"):
        if value := getattr(message, name):
            values[name] = value
    if message.tool_calls:
        values["tool_calls"] = [
            _call(call, f"messages[{place}].tool_calls[{index}]")
            for index, call in enumerate(message.tool_calls)
        ]
    if not has_content and not message.tool_calls:
        field = f"messages[{place}].content"
        raise InvalidArgument(f"{field} is missing", field)
    return values


def _call(call: pb.ToolCall, field: str) -> dict[str, Any]:
    """A call with its arguments as an object, which is what templates write as JSON."""
    arguments = _object(call.arguments or "{}", f"{field}.arguments")
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _object(text: str, field: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{field} is not JSON: {error}", field) from error
    if not isinstance(value, dict):
        raise InvalidArgument(f"{field} is JSON, but not an object", field)
    if _is_deeper(value, MAX_DEPTH):
        raise InvalidArgument(f"{field} is nested more than {MAX_DEPTH} deep", field)
    return value


def _is_deeper(value: object, depth: int) -> bool:
    """Whether objects and arrays are nested more deeply."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(each, depth - 1) for each in inner)
