"""A conversation that a client sends, its messages as the values that templates read. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.errors import InvalidArgument

MAX_DEPTH = 64  # of JSON in a conversation


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages to answer, plain values as a template reads them."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()  # JSON schemas of functions
    variables: Mapping[str, Any] = field(default_factory=dict)  # more for the template
    needed_variables: Sequence[str] = ()  # of these, those that the template must read
    has_answer_prompt: bool = True  # the beginning of an answer follows the messages
    continues_last: bool = False  # the last message is to be continued, not answered

    def __post_init__(self) -> None:
        if not self.messages:
            raise InvalidArgument("messages is empty, expected at least one message", "messages")
        if self.continues_last and self.has_answer_prompt:
            raise InvalidArgument(
                "continue_final_message is true, expected no beginning of an answer behind it",
                "continue_final_message",
            )

    @property
    def num_characters(self) -> int:
        """The characters of all texts in it, names included."""
        return sum(map(_num_characters, (*self.messages, *self.tools, self.variables)))


def read_message(
    field: str,
    role: str,
    content: str | None,
    *,
    name: str = "",
    tool_call_id: str = "",
    reasoning_content: str = "",
    tool_calls: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The values of one message, in OpenAI's shape. Raises `InvalidArgument`."""
    if not role:
        raise InvalidArgument(f"{field}.role is missing", f"{field}.role")
    if content is None and not tool_calls:
        raise InvalidArgument(f"{field}.content is missing", f"{field}.content")
    values: dict[str, Any] = {"role": role, "content": content}
    if name:
        values["name"] = name
    if tool_call_id:
        values["tool_call_id"] = tool_call_id
    if reasoning_content:
        values["reasoning_content"] = reasoning_content
    if tool_calls:
        values["tool_calls"] = tool_calls
    return values


def read_call(field: str, call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """The values of a call, its arguments as an object, which is what templates write as JSON.

    Raises `InvalidArgument`.
    """
    read = read_object(f"{field}.arguments", arguments or "{}")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": read}}


def read_object(field: str, text: str) -> dict[str, Any]:
    """An object of JSON. Raises `InvalidArgument` for other values, and for deep ones."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{field} is not JSON: {error}", field) from error
    if not isinstance(value, dict):
        raise InvalidArgument(f"{field} is JSON, but not an object", field)
    check_depth(field, value)
    return value


def check_depth(field: str, value: object) -> None:
    """Raise `InvalidArgument` for objects and arrays that are nested too deeply."""
    if _is_deeper(value, MAX_DEPTH):
        raise InvalidArgument(f"{field} is nested more than {MAX_DEPTH} deep", field)


def _is_deeper(value: object, depth: int) -> bool:
    """Whether objects and arrays are nested more deeply."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(each, depth - 1) for each in inner)


def _num_characters(value: object) -> int:  # plain values
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_num_characters, value.keys())) + sum(map(_num_characters, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_num_characters, value))
    return 0
