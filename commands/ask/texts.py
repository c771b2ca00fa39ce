"""Shared parts of commands for texts: any number of texts, answered as they come.

Texts are arguments, or the lines of stdin. One answer to arguments is shown whole; lines are shown
as rows of one table that grows, or as JSON. A refused text is reported on stderr with its line, the
others are answered, and the command ends with exit code 1.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import typer
from rich.text import Text

from commands.ask.asked import Asked
from commands.ask.bulk.answering import answer_file
from commands.ask.client.client import Client
from commands.ask.client.refusal import CallError
from commands.ask.files import given, input_of
from commands.ask.in_flight import Answered, InFlight, Refused
from commands.ask.lines import GivenTexts, StreamedTexts, Texts
from commands.ask.options import TRUNCATION, is_stdin
from commands.ask.progress import progress
from commands.ask.shown.outputs import output_of
from commands.errors import FAILURE, errors, print_error
from service.errors import InvalidArgument, SettingError

Ask = Callable[[Sequence[str]], Any]  # texts to an answer
AskPart = Callable[[Client, Sequence[str]], Any]
OnRefusal = Callable[[str, int, str], None]  # the noun for a text, its number, and the reason


def answer(asked: Asked) -> None:
    """Send all texts by requests that differ in nothing else, and print the answers."""
    answer_texts(asked)


def answer_texts(asked: Asked, ask: AskPart | None = None) -> None:
    """Send all texts and print the answers, or write those of a file; `ask` sends a part of them.

    A request that a full server refuses is repeated for as long as the server is waited for.
    """
    if asked.files is not None:
        path = input_of(asked.files, asked.texts, is_json=asked.is_json)
        if path is not None:
            answer_file(path, asked)
            return
    texts = asked.given if asked.files is None else given(asked.texts)
    with asked.client() as client:

        def ask_part(part: Sequence[str]) -> Any:
            return ask(client, part) if ask else client.ask(asked.call(texts=part))

        with output_of(asked, texts) as output:
            parts = answers(texts_of(texts), asked.server.timeout_s, ask_part, output.refuse)
            for answered, is_only in parts:
                output.write(answered.lines, answered.response, is_only=is_only)


def texts_of(given: Sequence[str]) -> Texts:
    """The arguments, or where they are '-', the lines of stdin. Raises `SettingError`."""
    if not is_stdin(given):
        return GivenTexts(given)
    if sys.stdin is None:
        raise SettingError("the texts are '-', and stdin is closed")
    return StreamedTexts(sys.stdin.buffer)


def answers(
    texts: Texts, patience_s: float, ask: Ask, on_refusal: OnRefusal | None = None
) -> Iterator[tuple[Answered[Any], bool]]:
    """Answers in order, each with whether it is the only one; refusals go to stderr.

    Raises `typer.Exit` if a text was refused, and the error of a request that failed. A first
    request without any answer raises its first refusal, which hardly depends on the texts.
    """
    count = _Count(texts)
    with (
        InFlight(texts, ask, patience_s) as in_flight,
        progress(texts.noun, texts.total) as advance,
    ):
        try:
            for parts in in_flight:
                done = [part for part in parts if isinstance(part, Answered)]
                refused = [part for part in parts if isinstance(part, Refused)]
                if not (count.num_requests or done):
                    _end_at_once(refused, texts)
                is_only = not count.num_requests and len(parts) == 1 and texts.has_ended
                count.add(done, refused)
                for part in done:
                    yield part, is_only
                for refusal in refused:
                    named = _named(refusal, texts.noun)
                    print_error(named)
                    if on_refusal is not None:
                        on_refusal(texts.noun, refusal.line.number, named)
                advance(max(map(_place, parts)), count.num_answered)
        except CallError:
            if count.num_requests:
                count.report()
            raise
    count.report()
    if count.num_refused:
        raise typer.Exit(FAILURE)


def _end_at_once(refused: Sequence[Refused], texts: Texts) -> None:
    """Raise the first refusal of a first request without any answer."""
    first = refused[0]
    noun = texts.noun
    if len(refused) == 1 and texts.has_ended and first.error is not None:
        if noun == "line":
            raise CallError(first.error.status, _named(first, noun)) from first.error
        raise first.error
    subject = f"none of the first {len(refused)} {noun}s" if len(refused) > 1 else f"no {noun}"
    raise InvalidArgument(f"{subject} could be answered: {_named(first, noun)}")


def _named(refusal: Refused, noun: str) -> str:
    """The reason of a refusal, with the number of the line in place of that in the request."""
    subject = f"{noun} {refusal.line.number}"
    if refusal.error is None:
        return f"{subject} {refusal.reason}"
    start, reason = "text 0 ", refusal.reason.replace(*TRUNCATION)
    if reason.startswith(start):
        return f"{subject} {reason.removeprefix(start)}"
    return f"{subject}: {reason}"


class _Count:
    """Counts the answered, empty and refused texts, and reports the counts at the end."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._began_s = time.monotonic()
        self.num_answered = self.num_refused = self.num_requests = 0

    def add(self, done: Sequence[Answered[Any]], refused: Sequence[Refused]) -> None:
        """Count the texts of one request."""
        self.num_requests += 1
        self.num_answered += sum(len(part.lines) for part in done)
        self.num_refused += len(refused)

    def report(self) -> None:
        """Print the counts, unless one request answered all texts."""
        num_empty, noun = self._texts.num_empty, self._texts.noun
        if self.num_requests == 1 and not (num_empty or self.num_refused):
            return
        took_s = time.monotonic() - self._began_s
        parts = [f"{counted(self.num_answered, noun)} answered in {took_s:.1f} s"]
        if num_empty:
            parts.append(f"{counted(num_empty, f'empty {noun}')} skipped")
        if self.num_refused:
            parts.append(f"{counted(self.num_refused, noun)} refused")
        errors.print(Text(", ".join(parts), "dim"))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun} was" if number == 1 else f"{number:,} {noun}s were"


def _place(part: Answered[Any] | Refused) -> int:
    return part.lines[-1].place if isinstance(part, Answered) else part.line.place
