"""Calls of functions in the text that a model writes, in the forms of published families.

    hermes    <tool_call>{"name": ..., "arguments": {...}}</tool_call>, text and calls in turn
    llama     {"name": ..., "parameters": {...}}, several with semicolons between them
    mistral   [TOOL_CALLS][{"name": ..., "arguments": {...}}]

The markers of some models are special tokens, which no text has: JSON at the beginning of an answer
is read in any form. What is no call of a function that the request declares is text, and nothing of
it is lost. Pure, and fed piece by piece: text that may begin a call is held back.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import uuid4

MARKERS = {
    "hermes": ("<tool_call>", "</tool_call>"),
    "llama": ("<|python_tag|>", "<|eom_id|>"),
    "mistral": ("[TOOL_CALLS]", ""),
}
ID_CHARACTERS = 9  # as Mistral's templates demand
BETWEEN = " \n\t;,"  # two calls
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Call:
    """One call; its arguments are the text of a JSON object."""

    id: str
    name: str
    arguments: str

    @property
    def fields(self) -> dict[str, Any]:
        """The call as OpenAI's clients read it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


Piece: TypeAlias = str | Call


class CallReader:
    """Reads one output. `_held` is what is not given yet; in a call it begins behind `_opening`."""

    def __init__(self, form: str, names: Collection[str], *, is_single: bool = False) -> None:
        self._begin, self._end = MARKERS[form]
        self._names = names
        self._is_single = is_single  # only the first call is given
        self._held = ""
        self._opening = ""  # the marker before what may be a call, and spaces before it
        self._is_in_call = False
        self._has_text = False
        self.num_calls = 0

    def read(self, text: str) -> list[Piece]:
        """What is certain after this text."""
        self._held += text
        pieces: list[Piece] = []
        while self._advance(pieces, has_closed="}" in text or "]" in text or bool(pieces)):
            pass
        return pieces

    def end(self) -> list[Piece]:
        """What was held back, as there is no more to come."""
        left = self._opening + self._held if self._is_in_call else self._held
        self._held = self._opening = ""
        if self.num_calls and not left.strip(BETWEEN):
            return []
        return [left] if left else []

    def _advance(self, pieces: list[Piece], *, has_closed: bool) -> bool:
        """Move on by a marker or a value; False where more text is needed."""
        if self._is_in_call:
            return has_closed and self._read_value(pieces)
        return self._read_text(pieces)

    def _read_text(self, pieces: list[Piece]) -> bool:
        held = self._held
        if self.num_calls:
            held = held.lstrip(BETWEEN)
            if self._end and held.startswith(self._end):
                self._held = held.removeprefix(self._end)
                return True
            if self._end.startswith(held):  # or a part of it
                return False
        bare = held.lstrip()
        may_be_marker = self._begin.startswith(bare) or bare.startswith(self._begin)
        if not self._has_text and bare.startswith(("{", "[")) and not may_be_marker:
            self._open(held[: len(held) - len(bare)], bare)
            return True
        before, marker, behind = held.partition(self._begin)
        if marker:
            said = before.rstrip()
            self._say(said, pieces)
            self._open(before[len(said) :] + marker, behind)
            return True
        certain = held[: len(held) - _num_open(held, self._begin)].rstrip()
        self._say(certain, pieces)
        self._held = held[len(certain) :]
        return False

    def _open(self, marker: str, behind: str) -> None:
        self._is_in_call, self._opening, self._held = True, marker, behind

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if text:
            pieces.append(text)
            self._has_text = True

    def _read_value(self, pieces: list[Piece]) -> bool:
        held = self._held.lstrip(BETWEEN)
        try:
            value, end = _DECODER.raw_decode(held)
        except (ValueError, RecursionError):
            return False
        self._is_in_call = False
        calls = self._calls_of(value)
        if not calls:
            end += len(self._held) - len(held)
            self._say(self._opening + self._held[:end], pieces)
            self._held = self._held[end:]
            return True
        kept = calls[: max(0, 1 - self.num_calls)] if self._is_single else calls
        pieces.extend(kept)
        self.num_calls += len(calls)
        self._held, self._opening = held[end:], ""
        return True

    def _calls_of(self, value: object) -> list[Call]:
        """The calls that a value is; none where a part of it is no call."""
        values = value if isinstance(value, list) else [value]
        calls = [self._call_of(each) for each in values]
        found = [call for call in calls if call is not None]
        return found if len(found) == len(calls) else []

    def _call_of(self, value: object) -> Call | None:
        if not isinstance(value, dict) or value.get("name") not in self._names:
            return None
        arguments = value.get("arguments", value.get("parameters", {}))
        if not isinstance(arguments, dict):
            return None
        text = json.dumps(arguments, ensure_ascii=False)
        return Call(uuid4().hex[:ID_CHARACTERS], str(value["name"]), text)


def _num_open(text: str, marker: str) -> int:
    """The characters at the end of a text that may begin a marker."""
    lengths = range(min(len(text), len(marker) - 1), 0, -1)
    return next((length for length in lengths if marker.startswith(text[-length:])), 0)
