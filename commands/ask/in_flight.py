"""Sends many texts in several concurrent requests, and returns the answers in order.

A few threads take turns: one takes the available texts, and sends them while the next one takes
texts. So texts are taken only as fast as they are answered, and are sent at once, without waiting
for a full request.

An invalid request is sent again in halves, which finds the invalid text and answers the others. A
request that a full server refuses is repeated after a growing pause, because gRPC's own retries end
after five, which is within half a second of a full queue. Knows nothing of consoles.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Generic, Self, TypeVar

from commands.ask.client.refusal import CallError
from commands.ask.lines import Line, Texts

R = TypeVar("R")  # response
REQUEST_TEXTS = 64
REQUESTS_IN_FLIGHT = 4
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class Conduct:
    """Rules of sending requests, and of those that fail."""

    in_flight: int = REQUESTS_IN_FLIGHT
    # Statuses after which a request is sent again in halves, until the culprits are found.
    halved: tuple[str, ...] = ("INVALID_ARGUMENT",)
    # Statuses that may pass, where the server has answered before.
    repeated: tuple[str, ...] = ("UNAVAILABLE",)
    request_texts: int = REQUEST_TEXTS


CONDUCT = Conduct()


@dataclass(frozen=True, slots=True)
class Answered(Generic[R]):
    """A response and its texts."""

    lines: list[Line]
    response: R

    @property
    def first(self) -> Line:
        return self.lines[0]


@dataclass(frozen=True, slots=True)
class Refused:
    """A text without an answer, and the reason."""

    line: Line
    reason: str
    error: CallError | None = None  # None: the text was not sent

    @property
    def first(self) -> Line:
        return self.line


class InFlight(Generic[R]):
    """The answers to texts: an iterator over those of one request each.

    At most `Conduct.in_flight` requests are under way, and as many answers wait to be read.
    """

    def __init__(
        self,
        texts: Texts,
        ask: Callable[[Sequence[str]], R],
        patience_s: float,
        conduct: Conduct = CONDUCT,
    ) -> None:
        """A request that a full server refused is repeated for `patience_s`."""
        self._conduct = conduct
        self._texts = texts
        self._ask = ask
        self._patience_s = patience_s
        self._has_answer = False
        self._turn = Lock()  # guards `_texts` and `_is_over`, and the order of `_answers`
        self._is_over = False  # no texts are left to take
        self._is_stopped = False  # answers are no longer read
        self._answers: Queue[Future[list[Answered[R] | Refused]] | None]
        self._answers = Queue(conduct.in_flight)

    def __enter__(self) -> Self:
        for _ in range(self._conduct.in_flight):
            Thread(target=self._work, daemon=True).start()
        return self

    def __iter__(self) -> Iterator[list[Answered[R] | Refused]]:
        while (future := self._answers.get()) is not None:
            yield future.result()

    def __exit__(self, *_: object) -> None:
        """Take no more texts; requests under way end with their channel."""
        self._is_over = self._is_stopped = True
        try:
            while True:
                self._answers.get_nowait()
        except Empty:
            pass

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            lines, future = taken
            try:
                future.set_result(self._answers_of(lines))
            except BaseException as error:  # raised to the reader of the answer
                future.set_exception(error)

    def _take(self) -> tuple[list[Line], Future[list[Answered[R] | Refused]]] | None:
        """The next texts, and the future of their answers; None at the end."""
        future: Future[list[Answered[R] | Refused]] = Future()
        with self._turn:
            if self._is_over:
                return None
            try:
                lines = self._texts.take(self._conduct.request_texts)
            except (OSError, ValueError) as error:
                if self._is_stopped:  # the file is closed: its reader left
                    return None
                self._is_over = True
                future.set_exception(error)
                self._answers.put(future)
                lines = []
            self._is_over = not lines
            self._answers.put(future if lines else None)
        return (lines, future) if lines else None

    def _answers_of(self, lines: list[Line]) -> list[Answered[R] | Refused]:
        sound = [line for line in lines if not line.fault]
        parts: list[Answered[R] | Refused] = [
            Refused(line, line.fault) for line in lines if line.fault
        ]
        parts += self._answers_to(sound) if sound else []
        return sorted(parts, key=lambda part: part.first.number)

    def _answers_to(self, lines: list[Line]) -> list[Answered[R] | Refused]:
        try:
            return [Answered(lines, self._response_to([line.text for line in lines]))]
        except CallError as error:
            if error.status not in self._conduct.halved:
                raise
            if len(lines) == 1:
                return [Refused(lines[0], error.text, error)]
        half = len(lines) // 2
        return self._answers_to(lines[:half]) + self._answers_to(lines[half:])

    def _response_to(self, texts: Sequence[str]) -> R:
        ends_s = time.monotonic() + self._patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                response = self._ask(texts)
            except CallError as error:
                wait_s = max(pause_s * random.uniform(0.8, 1.2), error.retry_after_s)  # noqa: S311
                is_late = time.monotonic() + wait_s > ends_s
                if self._is_stopped or is_late or not self._may_pass(error):
                    raise
                time.sleep(wait_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self._has_answer = True
                return response

    def _may_pass(self, error: CallError) -> bool:
        """Whether the same request may succeed later: the server says so, or answered before."""
        may_pass = error.status in self._conduct.repeated
        return error.retry_after_s > 0 or (may_pass and self._has_answer)
