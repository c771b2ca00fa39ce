"""Consecutive lines, sent in the order of their lengths and put together in their own.

Lines of a window are sorted by length, so that those of one request are alike: the server pads
little. No request has lines of two windows, and requests are a function of the file alone, so that
a resumed job sends the same ones. One thread takes lines at a time, under the lock of `InFlight`;
another one collects.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from commands.ask.in_flight import Answered, Refused
from commands.ask.lines import Line, Texts, take_first

MAX_WINDOW_CHARACTERS = 2**25  # a window of long lines ends before it has its number of them


@dataclass(slots=True)
class Window:
    """Consecutive lines of a file."""

    first: int  # its number, from 1
    num_lines: int
    place: int  # of its end in the file
    results: list[Any] = field(default_factory=list)  # of each line; None: it has none
    refused: list[Refused] = field(default_factory=list)  # in order, the empty lines too

    @property
    def last(self) -> int:
        return self.first + self.num_lines - 1


class Windows:
    """Texts in windows of `num_lines`; all lines of a file are in one."""

    num_empty = 0

    def __init__(self, texts: Texts, num_lines: int) -> None:
        self._texts = texts
        self._num_lines = num_lines
        self._rest: deque[Line] = deque()  # of the newest window, by length
        self._open: deque[Window] = deque()  # of which not all lines are answered
        self.noun = texts.noun
        self.total = texts.total

    @property
    def has_ended(self) -> bool:
        return not self._rest and self._texts.has_ended

    def take(self, most: int) -> list[Line]:
        if not self._rest:
            self._begin_next()
        return take_first(self._rest, most)

    def _begin_next(self) -> None:
        lines = next_lines(self._texts, self._num_lines)
        if lines:
            self._open.append(
                Window(lines[0].number, len(lines), lines[-1].place, [None] * len(lines))
            )
            self._rest.extend(sorted(lines, key=lambda line: (len(line.text), line.number)))

    def collected(
        self, answers: Iterable[list[Answered[Any] | Refused]], results_of: Any
    ) -> Iterator[Window]:
        """The windows in order, each when all its lines have an answer; `results_of` a response."""
        num_known = 0
        for parts in answers:
            window = self._open[0]
            for part in parts:
                if isinstance(part, Refused):
                    window.refused.append(part)
                    num_known += 1
                    continue
                for line, result in zip(part.lines, results_of(part.response), strict=True):
                    window.results[line.number - window.first] = result
                num_known += len(part.lines)
            if num_known == window.num_lines:
                window.refused.sort(key=lambda refusal: refusal.line.number)
                yield self._open.popleft()
                num_known = 0


class GivenLines:
    """Lines of a file that were read before."""

    noun = "line"
    total = None
    num_empty = 0

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = deque(lines)

    @property
    def has_ended(self) -> bool:
        return not self._lines

    def take(self, most: int) -> list[Line]:
        return take_first(self._lines, most)


def next_lines(texts: Texts, num_lines: int) -> list[Line]:
    """The next lines of a file: the given number, or fewer at its end or if they are very long."""
    lines: list[Line] = []
    num_characters = 0
    while len(lines) < num_lines and num_characters < MAX_WINDOW_CHARACTERS:
        taken = texts.take(num_lines - len(lines))
        if not taken:
            break
        lines += taken
        num_characters += sum(len(line.text) for line in taken)
    return lines
