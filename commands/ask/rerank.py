"""`attendant rerank`: documents in the order of their relevance to a query.

Documents are sent in several requests if they are many; every document is scored by itself, so the
scores of all requests are put in one order.
"""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from attendant.v1 import text_pb2 as pb

from commands.ask.bulk.options import NO_FILES, Files, answer_file, input_of, takes_files
from commands.ask.client.client import Client
from commands.ask.client.refusal import CallError
from commands.ask.in_flight import Answered
from commands.ask.lines import Line, StreamedTexts
from commands.ask.lines import Texts as Documents
from commands.ask.message_json import json_fields
from commands.ask.options import (
    MAX_UINT32,
    SERVER,
    AsJson,
    Model,
    RawScores,
    Server,
    Truncate,
    Version,
    asks,
    console,
)
from commands.ask.shown import tables
from commands.ask.texts import answers, texts_of
from service.errors import InvalidArgument, SettingError

MAX_DOCUMENTS = 65_536  # their texts are held until the last one is scored
_DOCUMENT = re.compile(r"documents\[(\d+)\] ")


@asks
@takes_files
def rerank(
    model: Model,
    query: Annotated[
        str | None,
        typer.Argument(
            help="What is searched for. Without it, each line of --input has a 'query' and "
            "'documents'."
        ),
    ] = None,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            help="One or more documents; '-' reads them from stdin, one per line, and skips empty "
            "lines. With --output, a file of documents, of which each gets its score."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            envvar="ATTENDANT_FILE",
            help="File of documents, one per line, in place of arguments; empty lines are skipped.",
        ),
    ] = None,
    top_n: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_TOP_N",
            help="Number of documents to show, best first; 0 shows all of them.",
        ),
    ] = 0,
    max_document_tokens: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_UINT32,
            envvar="ATTENDANT_MAX_DOCUMENT_TOKENS",
            help="Cut documents to that many tokens; 0 cuts none.",
        ),
    ] = 0,
    raw_scores: RawScores = None,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    files: Files = NO_FILES,
    server: Server = SERVER,
) -> None:

    def request(part: Sequence[str] = ()) -> pb.RerankRequest:
        return pb.RerankRequest(
            model=model,
            version=version,
            query=query or "",
            documents=part,
            truncate=truncate,
            max_document_tokens=max_document_tokens,
            top_n=top_n,
            raw_scores=raw_scores,
        )

    def ask(part: Sequence[str]) -> pb.RerankResponse:
        try:
            response: pb.RerankResponse = client.ask(request(part))
        except CallError as error:
            text = _DOCUMENT.sub(r"text \1 ", error.text, count=1)
            raise CallError(error.status, text, error.retry_after_s) from error
        return response

    path = input_of(files, texts, is_json=as_json)
    if path is not None:
        if top_n or file is not None:
            raise SettingError(
                "--top-n and --file are for one ranking on stdout, expected none of them beside "
                "--output: every line of the file gets its score"
            )
        answer_file(path, files, server, request(), has_queries=query is None)
        return
    if query is None:
        raise SettingError("no query is given, expected one before the documents")
    with Client(*server) as client, ExitStack() as opened:
        documents = _documents(texts or [], file, opened)
        ranking = _Ranking()
        try:
            ranking.read(answers(documents, server.timeout_s, ask), documents.noun)
        finally:  # the documents that were not refused
            ranking.show(top_n, as_json=as_json)


class _Ranking:
    """The scored documents of all answers, and the sums of what these took."""

    def __init__(self) -> None:
        self._found: list[tuple[str, pb.RankedDocument]] = []
        self._answer = pb.RerankResponse()

    def read(self, parts: Iterable[tuple[Answered[Any], bool]], noun: str) -> None:
        """Raises `InvalidArgument` for too many documents, and what the answers raise."""
        num_documents = 0
        for answered, _ in parts:
            num_documents += len(answered.lines)
            if num_documents > MAX_DOCUMENTS:
                raise InvalidArgument(
                    f"there are more than {MAX_DOCUMENTS} {noun}s, which is the limit of documents "
                    "that are put in one order: rank parts of them"
                )
            self._add(answered.lines, answered.response)
        if not num_documents:
            raise InvalidArgument("there are no documents, expected at least one")

    def _add(self, lines: Sequence[Line], response: pb.RerankResponse) -> None:
        answer = self._answer
        answer.model, answer.version = response.model, response.version
        answer.num_tokens += response.num_tokens
        for name in ("queue_seconds", "compute_seconds", "total_seconds"):
            total = getattr(answer.timings, name) + getattr(response.timings, name)
            setattr(answer.timings, name, total)
        for result in response.results:
            line = lines[result.index]
            result.index = line.number - 1
            self._found.append((line.text, result))

    def show(self, top_n: int, *, as_json: bool) -> None:
        """Print the best documents, if any was scored."""
        if not self._found:
            return
        best = sorted(self._found, key=lambda each: -each[1].score)[: top_n or None]
        self._answer.results.extend(result for _, result in best)
        texts = [text for text, _ in best]
        if not as_json:
            console.print(tables.ranking(texts, self._answer))
            return
        fields = json_fields(self._answer)
        for result, text in zip(fields["results"], texts, strict=True):
            result["text"] = text
        print(json.dumps(fields, ensure_ascii=False))  # noqa: T201


def _documents(given: list[str], file: Path | None, opened: ExitStack) -> Documents:
    """Raises `SettingError` for arguments beside a file, or neither."""
    if file is None:
        if not given:
            raise SettingError("no documents are given, expected texts, '-' or --file")
        return texts_of(given)
    if given:
        raise SettingError("texts and --file are both given, expected one of them")
    try:
        return StreamedTexts(opened.enter_context(file.open("rb")))
    except OSError as error:
        raise SettingError(f"--file '{file}' cannot be read: {error.strerror}") from error
