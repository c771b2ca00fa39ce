"""A chat in the making, from the bodies of both APIs, and errors in the words of a body."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from service.errors import path_in
from service.http.openai.chat_fields import ChatMessage, ChatRequest, FunctionCall, ToolCall
from service.http.request import Request
from service.http.shared.names import Names
from service.http.status import Headers, HttpError, invalid

LEFT_OUT = b"x-attendant-left-out"
MAX_NAMED = 16  # of what is left out


class Turns:
    """Messages of a chat in the making, and where in the body each is from."""

    def __init__(self) -> None:
        self.messages: list[ChatMessage] = []
        self.paths: dict[str, str] = {}  # of the chat's fields: the body's

    def add(self, path: str, message: ChatMessage) -> None:
        """Add a message; neighbouring messages of the user become one."""
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == message.role == "user":
            last.content = f"{last.content}\n\n{message.content}"
            return
        self.paths[f"messages[{len(self.messages)}]"] = path
        self.messages.append(message)

    def answer(self, path: str) -> ChatMessage:
        """The assistant's message that the next part belongs to."""
        if not self.messages or self.messages[-1].role != "assistant":
            self.add(path, ChatMessage(role="assistant"))
        return self.messages[-1]

    def say(self, path: str, text: str) -> None:
        """A text of the assistant."""
        message = self.answer(path)
        message.content = f"{message.content or ''}{text}"

    def think(self, path: str, text: str) -> None:
        """A thought of the assistant."""
        message = self.answer(path)
        message.reasoning_content = f"{message.reasoning_content or ''}{text}"

    def call(
        self,
        path: str,
        call_id: str,
        name: str,
        arguments: str | dict[str, Any],
        arguments_field: str = "arguments",
    ) -> None:
        """A call of the assistant's."""
        message = self.answer(path)
        place = len(message.tool_calls or ())
        field = f"messages[{len(self.messages) - 1}].tool_calls[{place}].function"
        self.paths[f"{field}.arguments"] = f"{path}.{arguments_field}"
        self.paths[f"{field}.name"] = f"{path}.name"
        call = ToolCall(FunctionCall(name, arguments), call_id)
        message.tool_calls = [*(message.tool_calls or ()), call]

    def result(self, path: str, call_id: str, text: str) -> None:
        """The result of a call."""
        self.add(path, ChatMessage(role="tool", content=text, tool_call_id=call_id))


def check_role(role: str, roles: Sequence[str], path: str) -> None:
    """Raise `HttpError` for the role of a message at `path` that is none of these."""
    if role not in roles:
        text = f"{path}.role is '{role[:64]}', expected one of {', '.join(roles)}"
        raise invalid(text, f"{path}.role")


def in_words_of(paths: Mapping[str, str], error: HttpError) -> HttpError:
    """The error of a chat's field, by the name that the body has for it."""
    if error.param is None:
        return error
    name = _longest(paths, error.param)
    text = str(error)
    if text.startswith(error.param):
        text = name + text.removeprefix(error.param)
    return HttpError(
        error.status,
        text,
        kind=error.kind,
        code=error.code,
        param=name,
        headers=error.headers,
        name=error.name,
    )


def names_in(paths: Mapping[str, str], chat: ChatRequest) -> Names:
    """The body's names of the fields of a call."""
    own = {name: _longest(paths, path) for name, path in chat.field_names.items()}
    return Names({**own, **paths})


def _longest(paths: Mapping[str, str], path: str) -> str:
    """The body's name of a path, by the longest part of its beginning that `paths` has."""
    known = [each for each in paths if path == each or path.startswith((f"{each}.", f"{each}["))]
    if not known:
        return path_in(paths, path)
    best = max(known, key=len)
    return paths[best] + path.removeprefix(best)


def leave_out(request: Request, names: list[str]) -> None:
    """Name the parts of the body that are ignored in a header of the answer."""
    if names:
        text = ", ".join(name[:64] for name in names[:MAX_NAMED])
        headers: Headers = ((LEFT_OUT, text.encode("ascii", "replace")),)
        request.reply_headers += headers


def event(name: str, value: object) -> bytes:
    """The lines of a named event, without their ends."""
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value)
