"""The commands `classify-tokens` and `answer`."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from attendant.v1 import reading_pb2 as pb

from commands.ask.bulk.options import (
    NO_FILES,
    Files,
    OptionalTexts,
    answer_file,
    given,
    input_of,
    takes_files,
)
from commands.ask.client.client import Client
from commands.ask.options import (
    MAX_UINT32,
    SERVER,
    AsJson,
    Model,
    Server,
    Truncate,
    Version,
    asks,
    show,
)
from commands.ask.shown import tables
from commands.ask.texts import AsNdjson, answer_texts
from service.errors import SettingError


@asks
@takes_files
def classify_tokens(
    model: Model,
    texts: OptionalTexts = None,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    files: Files = NO_FILES,
    server: Server = SERVER,
) -> None:

    def request(part: Sequence[str] = ()) -> pb.ClassifyTokensRequest:
        return pb.ClassifyTokensRequest(model=model, version=version, texts=part, truncate=truncate)

    path = input_of(files, texts, is_json=as_json or as_ndjson)
    if path is not None:
        answer_file(path, files, server, request())
        return
    with Client(*server) as client:
        answer_texts(
            given(texts),
            server.timeout_s,
            lambda part: client.ask(request(part)),
            tables.entities,
            as_json=as_json,
            as_ndjson=as_ndjson,
        )


@asks
def answer(
    model: Model,
    question: Annotated[str, typer.Argument(help="Question to answer from the context.")],
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
    top_k: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_UINT32,
            envvar="ATTENDANT_ANSWER_TOP_K",
            help="Largest number of answers, best first.",
        ),
    ] = 1,
    max_answer_tokens: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_MAX_ANSWER_TOKENS",
            help="Longest answer in tokens; 0 means 30.",
        ),
    ] = 0,
    must_answer: Annotated[
        bool,
        typer.Option(
            envvar="ATTENDANT_MUST_ANSWER",
            help="Answer even if it is more likely that the context has no answer.",
        ),
    ] = False,
    version: Version = "",
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    request = pb.AnswerRequest(
        model=model,
        version=version,
        question=question,
        context=_context(context, context_file),
        top_k=top_k,
        max_answer_tokens=max_answer_tokens,
        must_answer=must_answer,
    )
    with Client(*server) as client:
        response = client.ask(request)
    show(response, tables.answers, as_json)


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
