"""Keeps users' texts from being special tokens of a prompt: pure work on texts.

Before a template is rendered, a mark breaks every special token that a user's text spells, or may
spell together with what stands beside it. In the rendered prompt, a special token with a mark
inside is the user's, and is encoded as text; the others are the template's. The mark is a character
that Unicode says is none, and that neither the conversation nor the template has.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from service.errors import InvalidArgument

MARKS = tuple(map(chr, range(0xFDD0, 0xFDF0)))  # Unicode: not characters, for use inside a program
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A special token, as it is found in a text."""

    text: str
    takes_space_before: bool = False
    takes_space_behind: bool = False


class SpecialTexts:
    """The special tokens of one tokenizer."""

    def __init__(self, tokens: Iterable[SpecialToken]) -> None:
        # The longest first, as the one that is found where several begin.
        ordered = sorted(tokens, key=lambda token: (-len(token.text), token.text))
        texts = [token.text for token in ordered if token.text]
        self._spelt = re.compile("|".join(map(re.escape, texts))) if texts else None
        found = [_pattern(token) for token in ordered if token.text]
        self._found = re.compile("|".join(found)) if found else None
        self._beginnings = {text[:end] for text in texts for end in range(1, len(text))}
        self._ends = {text[start:] for text in texts for start in range(1, len(text))}
        self._longest = max(map(len, texts), default=1) - 1

    def mark_in(self, value: object, others: Iterable[str]) -> str:  # plain values
        """A mark that neither the values nor other texts have. Raises `InvalidArgument`."""
        joined = "".join((*_texts_in(value), *others))
        free = next((mark for mark in MARKS if mark not in joined), None)
        if free is None:
            raise InvalidArgument(
                "the messages have every character that Unicode says is none", "messages"
            )
        return free

    def broken(self, value: Any, mark: str) -> Any:  # noqa: ANN401 - plain values
        """Plain values with a mark in each special token, and at ends that may be a part of one."""
        if isinstance(value, str):
            return self._broken(value, mark)
        if isinstance(value, Mapping):
            return {self._broken(k, mark): self.broken(v, mark) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.broken(each, mark) for each in value]
        return value

    def _broken(self, text: str, mark: str) -> str:
        if self._spelt is None or not text:
            return text
        broken = self._spelt.sub(lambda match: _broken(match[0], mark), text)
        ends = range(1, min(self._longest, len(text)) + 1)
        before = mark if any(text[:end] in self._ends for end in ends) else ""
        behind = mark if any(text[-end:] in self._beginnings for end in ends) else ""
        return f"{before}{broken}{behind}"

    def split(self, prompt: str, mark: str) -> tuple[str, list[Span]]:
        """The prompt without marks, and where the template's own special tokens are in it."""
        pieces = prompt.split(mark)
        text = "".join(pieces)
        if self._found is None:
            return text, []
        places = list(accumulate(map(len, pieces[:-1])))
        spans = [match.span() for match in self._found.finditer(text)]
        return text, [span for span in spans if not _is_marked(span, places)]


def _broken(special: str, mark: str) -> str:
    """A special token with a mark inside, or on both sides where it is one character."""
    if len(special) == 1:
        return f"{mark}{special}{mark}"
    return f"{special[:1]}{mark}{special[1:]}"


def _is_marked(span: Span, places: list[int]) -> bool:
    """Whether marks, at places in ascending order, break what stands at a span."""
    start, end = span
    if end - start == 1:
        return _has(places, start) and _has(places, end)
    place = bisect_right(places, start)
    return place < len(places) and places[place] < end


def _has(places: list[int], wanted: int) -> bool:
    place = bisect_left(places, wanted)
    return place < len(places) and places[place] == wanted


def _pattern(token: SpecialToken) -> str:
    before = r"\s*" if token.takes_space_before else ""
    behind = r"\s*" if token.takes_space_behind else ""
    return f"{before}{re.escape(token.text)}{behind}"


def _texts_in(value: object) -> Iterable[str]:  # plain values
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts_in(key)
            yield from _texts_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts_in(each)
