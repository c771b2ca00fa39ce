"""Renders chat templates in a process of its own: started by `template_process.py`, as a script.

A template comes with a model's weights and is a program. Jinja's sandbox keeps it from Python's
internals, but bounds neither time nor memory, and one operation may take all of both. So it runs
where the operating system bounds them. The environment is that of `apply_chat_template` in
transformers, so that a prompt is the same text.

Frames of JSON come through standard input, and answers leave through standard output, each after
its number of bytes. The first frame has the templates and the bounds. Imports nothing of ours.
"""

import json
import resource
import signal
import struct
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, BinaryIO, TypeGuard

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

SIZE = struct.Struct("<Q")
TAG = "CONTINUE_FINAL_MESSAGE_TAG "
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
MAX_ERROR_CHARACTERS = 1_000
EXTRA_S = 1  # beyond the server's limit; it has ended the process by then, unless it is gone itself


class RenderError(Exception):
    """A conversation that a template refuses, or cannot be rendered for."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks an assistant's text for training; it is rendered as its content."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 has it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_content")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _content(self, caller: jinja2.runtime.Macro) -> str:
        return str(caller())


class _Dict:
    """`dict` without the attributes of the class."""

    def __call__(self, *values: Any, **named: Any) -> dict[Any, Any]:  # noqa: ANN401 - a template's
        return dict(*values, **named)

    def fromkeys(self, *values: Any) -> dict[Any, Any]:  # noqa: ANN401 - a template's
        return dict.fromkeys(*values)


class _Namespace(jinja2.utils.Namespace):
    """A namespace that takes no names of Python's internals."""

    def __init__(*values: Any, **named: Any) -> None:  # noqa: ANN401 - `self` may be a name
        self, rest = values[0], values[1:]
        attributes = dict(*rest, **named)
        for name in attributes:
            _check_name(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace takes no name like {name!r}")


class _Nothing(str):
    """The content of a message that has none: no text where it is written, and none in a test.

    Templates write it, join it, strip it, and ask whether it is none.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return other is None or str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


NOTHING = _Nothing()


def environment() -> ImmutableSandboxedEnvironment:
    """Jinja as transformers sets it up."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    made.filters["tojson"] = _to_json
    made.tests["none"] = _is_none
    made.tests["string"] = _is_text
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = _now
    made.globals["dict"] = _Dict()
    made.globals["namespace"] = _Namespace
    return made


def _is_none(value: object) -> bool:
    return value is None or isinstance(value, _Nothing)


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, _Nothing)


def _as_json(value: object) -> object:
    """The value with null in place of a content that there is not."""
    if isinstance(value, _Nothing):
        return None
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list | tuple) else value


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without Jinja's escapes for HTML."""
    return json.dumps(
        _as_json(value),
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(text: str) -> None:
    raise jinja2.exceptions.TemplateError(text)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


class Renderer:
    """The templates of one model."""

    def __init__(self, texts: Mapping[str, str], variables: Mapping[str, str]) -> None:
        made = environment()
        self._texts = texts
        self._templates = {name: made.from_string(text) for name, text in texts.items()}
        self._variables = variables

    def render(self, request: Mapping[str, Any], max_characters: int) -> str:
        """The prompt. Raises `RenderError`, and whatever a template makes of Jinja."""
        name, messages = request["template"], list(map(_as_read, request["messages"]))
        last = _tagged(messages, self._texts[name]) if request["continues_last"] else None
        pieces, num_characters = [], 0
        variables = {**self._variables, **request["variables"]}
        for piece in self._templates[name].generate(
            **{
                **variables,
                "messages": messages,
                "tools": request["tools"] or None,
                "documents": variables.get("documents"),
                "add_generation_prompt": request["has_answer_prompt"],
            }
        ):
            num_characters += len(piece)
            if num_characters > max_characters:
                raise RenderError(
                    f"the chat template writes more than {max_characters} characters, which is "
                    "the limit"
                )
            pieces.append(piece)
        text = "".join(pieces)
        return text if last is None else _cut_at_tag(text, last)


def _as_read(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its reasoning under each name that templates read."""
    if message.get("content") is None:
        message = {**message, "content": NOTHING}
    given = (message[name] for name in REASONING_FIELDS if message.get(name) is not None)
    reasoning = next(given, None)
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def _tagged(messages: list[dict[str, Any]], template: str) -> str:
    """The text of the last message, which has the tag behind it now."""
    text = messages[-1].get("content")
    if not _is_text(text) or "content" not in template:
        raise RenderError("the last message has no text to continue")
    messages[-1] = {**messages[-1], "content": text + TAG}
    return text


def _cut_at_tag(text: str, last: str) -> str:
    if last.strip() not in text or TAG.strip() not in text:
        raise RenderError("the chat template leaves out the last message, which was to continue")
    place = text.rindex(TAG.strip())
    kept = text[:place]
    return kept if text[place : place + len(TAG)] == TAG else kept.rstrip()


def _read(stream: BinaryIO) -> dict[str, Any]:
    """The object in the next frame. Raises `EOFError`."""
    head = stream.read(SIZE.size)
    if len(head) < SIZE.size:
        raise EOFError
    values: dict[str, Any] = json.loads(stream.read(SIZE.unpack(head)[0]))
    return values


def _write(stream: BinaryIO, value: Mapping[str, str]) -> None:
    content = json.dumps(value).encode()
    stream.write(SIZE.pack(len(content)) + content)
    stream.flush()


def _told(error: BaseException) -> dict[str, str]:
    """The answer for a client: an error's text, which templates write for it, else its kind."""
    text = str(error)[:MAX_ERROR_CHARACTERS]
    if isinstance(error, RenderError):
        return {"error": text}
    return {"error": f"the chat template refuses it: {text or type(error).__name__}"}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when it ends
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    start = _read(requests)
    resource.setrlimit(resource.RLIMIT_AS, (start["max_bytes"], start["max_bytes"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    limit_s = start["limit_s"] + EXTRA_S
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        renderer = Renderer(start["texts"], start["special_tokens"])
    except Exception as error:
        line = getattr(error, "lineno", None)
        place = f"line {line}: " if line else ""
        _write(answers, {"error": f"{place}{str(error)[:MAX_ERROR_CHARACTERS]}"})
        return
    _write(answers, {})
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            request = _read(requests)
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            answer = {"text": renderer.render(request, start["max_characters"])}
        except MemoryError:
            sys.exit(1)  # as where the process is killed: the server says which limits there are
        except Exception as error:
            answer = _told(error)
        _write(answers, answer)


if __name__ == "__main__":
    main()
