"""`attendant answer`: a question, and the context that has its answer."""

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from commands.ask.asked import Asked
from service.errors import SettingError


def answer(
    asked: Asked,
    context: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_CONTEXT",
            help="Text that contains the answer; @FILE reads it from a UTF-8 file, @- from stdin.",
        ),
    ] = "",
    context_file: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_CONTEXT_FILE",
            help="UTF-8 file with the context; '-' reads it from stdin.",
        ),
    ] = "",
) -> None:
    call = asked.call(context=_context(context, context_file))
    with asked.client() as client:
        asked.show(client.ask(call), asked.draw)


def _context(given: str, file: str) -> str:
    """The context. Raises `SettingError` if it is not given or a file cannot be read."""
    if bool(given) == bool(file):
        found = "both are given" if given else "neither is given"
        raise SettingError(f"{found}, expected --context TEXT or --context-file FILE")
    if file or given.startswith("@"):
        return _content(file or given[1:])
    if os.path.isfile(given):  # Path.is_file raises if a text is no valid name
        return _content(given)
    if _looks_like_path(given):
        raise SettingError(
            f"--context '{given}' looks like a file's name, and there is no such file; "
            "to pass these characters as text, pipe them to --context @-"
        )
    return given


def _content(name: str) -> str:
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return content.decode()
    except (OSError, ValueError) as error:  # no file, no UTF-8, or a name with a zero byte
        hint = "; a text that begins with '@' is piped to --context @-" if " " in name else ""
        raise SettingError(f"--context '{name}' cannot be read: {error}{hint}") from error


def _looks_like_path(text: str) -> bool:
    """Whether the text is a single word with a folder separator or a file extension."""
    return bool(re.fullmatch(r"\S*[/\\]\S*|\S+\.[A-Za-z]\w{0,4}", text))
