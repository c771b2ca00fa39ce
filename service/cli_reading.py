"""The commands that ask models which read texts word by word."""

import os
from pathlib import Path
from typing import Annotated

import typer
from attendant.v1 import reading_pb2 as pb

from service import tables
from service.cli_common import (
    SERVER,
    AsJson,
    Model,
    Server,
    Texts,
    Truncate,
    Version,
    asks,
    given_texts,
    show,
)
from service.client import ReadingClient
from service.errors import SettingError


@asks
def classify_tokens(
    model: Model,
    texts: Texts,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served token classifier for the entities in texts."""
    texts = given_texts(texts)
    request = pb.ClassifyTokensRequest(model=model, version=version, texts=texts, truncate=truncate)
    with ReadingClient(*server) as client:
        response = client.classify_tokens(request)
    show(response, lambda found: tables.entities(texts, found), as_json)


@asks
def answer(
    model: Model,
    question: Annotated[str, typer.Argument(help="What to look for in the context.")],
    context: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_CONTEXT", help="A text, or the name of a file that has it in UTF-8."
        ),
    ],
    top_k: Annotated[
        int, typer.Option(min=1, envvar="ATTENDANT_TOP_K", help="Answers at most, best first.")
    ] = 1,
    max_answer_tokens: Annotated[
        int,
        typer.Option(
            min=0, envvar="ATTENDANT_MAX_ANSWER_TOKENS", help="Longest answer; 0: 30 tokens."
        ),
    ] = 0,
    must_answer: Annotated[
        bool,
        typer.Option(
            envvar="ATTENDANT_MUST_ANSWER", help="Give an answer even if none is more likely."
        ),
    ] = False,
    version: Version = "",
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served model for the part of a context that answers a question."""
    request = pb.AnswerRequest(
        model=model,
        version=version,
        question=question,
        context=_context(context),
        top_k=top_k,
        max_answer_tokens=max_answer_tokens,
        must_answer=must_answer,
    )
    with ReadingClient(*server) as client:
        response = client.answer(request)
    show(response, tables.answers, as_json)


def _context(given: str) -> str:
    is_file = os.path.isfile(given)  # Path.is_file raises where a text is no name
    if not is_file:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"--context '{given}' cannot be read: {error}") from error
