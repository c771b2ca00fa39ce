"""The `generate` command: continues a prompt, and prints the text while it is generated.

Only flags that are given are sent: the server knows the defaults, and refuses what is out of range.
A pipe gets the text as it is, a terminal without control characters; token counts and times go to
stderr.
"""

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any
from unicodedata import category

import typer

from commands.ask.asked import Asked
from commands.ask.call_flags import CallFlag
from commands.ask.client.refusal import CallError
from commands.ask.options import console
from commands.ask.shown import generation_tables as tables
from commands.errors import errors
from commands.flags import command_of, flag, own_parameters
from service.calls.generation import GenerateChunk, GenerateResponse
from service.calls.record import abouts
from service.calls.sampling import Sampling
from service.calls.sampling_values import sampling_of
from service.errors import InvalidArgument

Prompt = Annotated[str, typer.Argument(help="Text to continue; '-' reads it from stdin.")]
CanStream = Annotated[
    bool,
    typer.Option(
        "--stream/--no-stream",
        envvar="ATTENDANT_STREAM",
        help="Print text while it is generated, or only when it is complete.",
    ),
]


def _sampling(name: str) -> dict[str, Any]:
    variable = f"ATTENDANT_SAMPLING_{name.upper()}"
    return {"variable": variable, "panel": "Sampling", "default": None}


def _form(name: str, kind: object, text: str) -> inspect.Parameter:
    """The flag of a form that an output keeps to."""
    return flag(name, kind, None, text, _sampling(name)["variable"], panel="Sampling")


SAMPLING = (
    *(
        CallFlag(each, _sampling(each.name)).parameter()
        for each in abouts(Sampling)
        if each.help and each.says.get("flag") is not False
    ),
    _form("json_schema", Path | None, "File with a JSON schema that the output keeps to."),
    _form("regex", str | None, "Regular expression that the whole output matches."),
    _form(
        "choice",
        list[str] | None,
        "Text that the output may be; given once for each of the texts to choose from.",
    ),
)


def _generate(asked: Asked, prompt: Prompt, can_stream: CanStream = True, **sampling: Any) -> None:
    text = sys.stdin.read() if prompt == "-" else prompt
    call = asked.call(prompt=text, sampling_params=params_of(read_flags(sampling)))
    with asked.client() as client:
        is_one_text = sampling["n"] in (None, 1) and sampling["prompt_logprobs"] is None
        if can_stream and not asked.as_json and is_one_text:
            _write(client.stream(call))
        else:
            _show_whole(asked, client.generate(call))


generate = command_of(_generate, [*own_parameters(_generate), *SAMPLING])


def read_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags, with a file's schema. Raises `BadParameter` and `UnicodeEncodeError`."""
    for value in flags.values():
        for text in value if isinstance(value, list) else [value]:
            str(text).encode()  # a command line has bytes that no text has as surrogates
    path = flags["json_schema"]
    return flags if path is None else {**flags, "json_schema": _schema_in(path)}


def params_of(flags: dict[str, Any]) -> Sampling:
    """The flags that are given, as a request has them. Raises `CallError`, as the server does."""
    try:
        return sampling_of(flags)
    except InvalidArgument as error:
        raise CallError("INVALID_ARGUMENT", str(error)) from error


def _schema_in(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        text = f"{path} cannot be read: {reason}"
        raise typer.BadParameter(text, param_hint="'--json-schema'") from error


def _write(chunks: Iterable[GenerateChunk]) -> None:
    """Print text as it arrives, then the token counts and times of the last chunk."""
    last = GenerateChunk()
    has_line = False  # that must end, also so that an error message starts a line
    try:
        for last in chunks:
            has_line = has_line or bool(last.text)
            sys.stdout.write(shown(last.text))
            sys.stdout.flush()
        has_line = True  # an empty text is printed as an empty line
    finally:
        if has_line:
            sys.stdout.write("\n")
    _print_account(last)


def _show_whole(asked: Asked, response: GenerateResponse) -> None:
    if asked.as_json:
        asked.show(response, tables.generated)
        return
    if response.prompt_logprobs:
        console.print(tables.scored(response.prompt_logprobs))
    if len(response.results) > 1:
        console.print(tables.generated(response))
    elif response.usage.output_tokens:
        sys.stdout.write(shown(response.results[0].text) + "\n")
    _print_account(response)


def _print_account(answer: GenerateChunk | GenerateResponse) -> None:
    errors.print(tables.account(answer), soft_wrap=True)


def shown(text: str) -> str:
    """The text for stdout; a terminal would obey its control characters, so they are replaced."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c in "\n\t" or category(c) != "Cc" else "\ufffd" for c in text)
