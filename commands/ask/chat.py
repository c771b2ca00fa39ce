"""The `chat` command: a conversation with a model in the terminal, answers as they are generated.

The program keeps the conversation, the server only the keys and values of its beginning. Ctrl-C
stops an answer; what was said of it stays in the conversation, as a person has read it.
"""

import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from typing import Annotated, Any

import typer

from commands.ask.asked import Asked
from commands.ask.client.client import Client
from commands.ask.client.refusal import CallError
from commands.ask.generate import SAMPLING, params_of, read_flags, shown
from commands.ask.shown import generation_tables
from commands.errors import errors, print_error
from commands.flags import command_of, own_parameters
from service.calls.conversation import Conversation
from service.calls.generation import GenerateChunk

System = Annotated[
    str,
    typer.Option(envvar="ATTENDANT_CHAT_SYSTEM", help="Text of the system's message, which leads."),
]
PROMPT = "> "
HELP = "/clear begins a new conversation, /quit or Ctrl-D ends the program; Ctrl-C stops an answer"
CUT = "the answer was cut: --max-tokens says how long one may be, as far as the context has room"
NOT_OF_A_CHAT = ("n", "beam_width", "length_penalty", "prompt_logprobs")


class Talk:
    """A conversation so far."""

    def __init__(self, system: str) -> None:
        self._first = [_message("system", system)] if system else []
        self.messages = list(self._first)

    def clear(self) -> None:
        self.messages = list(self._first)

    def say(self, text: str) -> None:
        self.messages.append(_message("user", text))

    def unsay(self) -> None:
        """Take back the last message, which was not answered."""
        self.messages.pop()

    def answered(self, text: str) -> None:
        self.messages.append(_message("assistant", text))


def _message(role: str, text: str) -> dict[str, str]:
    """A message. Raises `UnicodeEncodeError` for bytes that no text has."""
    text.encode()
    return {"role": role, "content": text}


def _chat(asked: Asked, system: System = "", **sampling: Any) -> None:
    flags = read_flags({"fit_max_tokens": True, **sampling})
    is_terminal = sys.stdin.isatty()
    with asked.client() as client:
        _check_model(client, asked.fields["model"])
        if is_terminal:
            import_module("readline")  # `input` edits lines with it, and has the earlier ones
            errors.print(HELP, style="dim")
        talk = Talk(system)
        for text in _lines(is_terminal):
            if text == "/clear":
                talk.clear()
            elif text.startswith("/"):
                print_error(f"'{text[:64]}' is not known; {HELP}")
            else:
                talk.say(text)
                _answer(client, asked, talk, flags, is_terminal=is_terminal)


chat = command_of(
    _chat,
    [*own_parameters(_chat), *(each for each in SAMPLING if each.name not in NOT_OF_A_CHAT)],
)


def _check_model(client: Client, name: str) -> None:
    """Raise `CallError` for a model without a chat template, before anything is typed."""
    found = [model for model in client.models().models if model.name == name]
    if found and not any(model.has_chat_template for model in found):
        raise CallError(
            "INVALID_ARGUMENT",
            f"model '{name}' has no chat template: 'attendant generate' continues texts",
        )
    if not found:
        raise CallError("NOT_FOUND", f"Request for unknown model: '{name}' is not found")


def _lines(is_terminal: bool) -> Iterator[str]:
    """Lines that a person types until the end, without empty ones."""
    while True:
        try:
            text = input(PROMPT if is_terminal else "").strip()
        except EOFError:
            if is_terminal:
                sys.stdout.write("\n")
            return
        except KeyboardInterrupt:
            if not is_terminal:
                raise
            sys.stdout.write("\n")
            continue
        if text == "/quit":
            return
        if text:
            yield text


def _answer(
    client: Client, asked: Asked, talk: Talk, flags: dict[str, Any], *, is_terminal: bool
) -> None:
    """Print an answer as it comes, and keep it. In a terminal, errors and Ctrl-C end it alone."""
    pieces: list[str] = []
    last = GenerateChunk()
    try:
        call = asked.call(prompt=Conversation(talk.messages), sampling_params=params_of(flags))
        with closing(client.stream(call)) as chunks:
            for last in chunks:
                pieces.append(last.text)
                sys.stdout.write(shown(last.text))
                sys.stdout.flush()
    except KeyboardInterrupt:
        if not is_terminal:
            raise
    except CallError as error:
        if not is_terminal:
            raise
        print_error(f"{error.status}: {error.text}")
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()
    if any(pieces):
        talk.answered("".join(pieces))
    else:
        talk.unsay()
    if last.finish_reason == "length":
        errors.print(CUT, style="dim", soft_wrap=True)
    if last.usage is not None:
        errors.print(generation_tables.account(last), style="dim", soft_wrap=True)
