"""`attendant rerank` and `score`: documents by their relevance to a query, or texts by theirs.

Documents are sent in several requests if they are many; every document is scored by itself, so the
scores of all requests are put in one order.
"""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from commands.ask.asked import Asked
from commands.ask.bulk.answering import answer_file
from commands.ask.client.client import Client
from commands.ask.client.refusal import CallError
from commands.ask.files import input_of
from commands.ask.in_flight import Answered
from commands.ask.lines import Line, StreamedTexts, Texts
from commands.ask.message_json import json_fields
from commands.ask.options import console
from commands.ask.shown import tables
from commands.ask.texts import answer_texts, answers, texts_of
from service.calls.texts import RankedDocument, Ranking
from service.errors import InvalidArgument, SettingError

MAX_DOCUMENTS = 65_536  # their texts are held until the last one is scored
_DOCUMENT = re.compile(r"documents\[(\d+)\] ")


def score(
    asked: Asked, query: Annotated[str, typer.Argument(help="The first text of each pair.")]
) -> None:
    def ask(client: Client, part: Sequence[str]) -> Any:
        return client.ask(asked.call(texts=[query] * len(part), text_pairs=part))

    answer_texts(asked, ask)


def rerank(
    asked: Asked,
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
) -> None:
    assert asked.files is not None, "it takes files"
    top_n = asked.fields["top_n"]
    path = input_of(asked.files, texts, is_json=asked.as_json)
    if path is not None:
        if top_n or file is not None:
            raise SettingError(
                "--top-n and --file are for one ranking on stdout, expected none of them beside "
                "--output: every line of the file gets its score"
            )
        asked = replace(asked, fields={**asked.fields, "query": query or ""})
        answer_file(path, asked, has_queries=query is None)
        return
    if query is None:
        raise SettingError("no query is given, expected one before the documents")
    with asked.client() as client, ExitStack() as opened:

        def ask(part: Sequence[str]) -> Ranking:
            try:
                answer: Ranking = client.ask(asked.call(query=query, documents=part))
            except CallError as error:
                text = _DOCUMENT.sub(r"text \1 ", error.text, count=1)
                raise CallError(error.status, text, error.retry_after_s) from error
            return answer

        documents = _documents(texts or [], file, opened)
        ranking = _Ranking()
        try:
            ranking.read(answers(documents, asked.server.timeout_s, ask), documents.noun)
        finally:  # the documents that were not refused
            ranking.show(top_n, as_json=asked.as_json)


class _Ranking:
    """The scored documents of all answers, and the sums of what these took."""

    def __init__(self) -> None:
        self._found: list[tuple[str, RankedDocument]] = []
        self._answer: Ranking | None = None

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

    def _add(self, lines: Sequence[Line], answer: Ranking) -> None:
        sums = self._answer
        self._answer = (
            answer
            if sums is None
            else answer.also(
                num_tokens=sums.num_tokens + answer.num_tokens,
                timings=sums.timings + answer.timings,
            )
        )
        for result in answer.results:
            line = lines[result.index]
            self._found.append((line.text, result.at(line.number - 1)))

    def show(self, top_n: int, *, as_json: bool) -> None:
        """Print the best documents, if any was scored."""
        if self._answer is None:
            return
        best = sorted(self._found, key=lambda each: -each[1].score)[: top_n or None]
        texts = [text for text, _ in best]
        answer = self._answer.also(results=[result for _, result in best])
        if not as_json:
            console.print(tables.ranking(texts, answer))
            return
        fields = json_fields(answer)
        for result, text in zip(fields["results"], texts, strict=True):
            result["text"] = text
        print(json.dumps(fields, ensure_ascii=False))  # noqa: T201


def _documents(given: list[str], file: Path | None, opened: ExitStack) -> Texts:
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
