"""Reads the JSON of one call as it comes, and says as early as it can that it becomes none.

A call is an object with the name of a declared function, and its arguments as an object, as the
text of one, or left out. The reader knows at each character whether what was read can still become
such an object, so that what cannot is text at once. Pure, and in time linear in the text.
"""

import json
import re
from collections.abc import Collection
from enum import Enum, auto

from service.calls.conversation import MAX_DEPTH

NAME = "name"
OTHER_NAMES = {"tool_name": NAME}  # Cohere's
ARGUMENTS = ("arguments", "parameters")
# Those of JSON that no marker says to be a call: what has others is an answer, as a list of tools.
KEYS = frozenset({NAME, *ARGUMENTS, "type", "id"})
MAX_WORD_CHARACTERS = 4_300  # of a number; Python reads none that is longer

_SPACES = re.compile(r"[ \t\n\r]*")
# Line breaks and tabs within strings are no JSON, but models write them.
_CHARACTERS = re.compile(
    r'(?:[^"\\\x00-\x08\x0b\x0c\x0e-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+'
)
_OPEN_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_WORD = re.compile(r"[-+.\w]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_OPEN_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:(?<=[0-9])[eE][-+]?[0-9]*)?)?")
_WORDS = ("true", "false", "null")


class _Next(Enum):
    """Kind of sign that may stand at a place."""

    VALUE = auto()
    FIRST = auto()  # a value, or the end of an empty array
    KEY = auto()
    FIRST_KEY = auto()  # a key, or the end of an empty object
    COLON = auto()
    MORE = auto()  # a comma, or the end of what is open


class CallScan:
    """One object, from its brace on. `_place` is behind the last whole part of `text`."""

    def __init__(self, names: Collection[str], *, is_marked: bool) -> None:
        self._names = names
        self._keys = None if is_marked else KEYS
        self.text = ""
        self.can_be_call = True
        self.end: int | None = None  # behind the closing brace
        self.name: str | None = None
        self._place = 0
        self._read = 0  # of a string that is not whole, what was looked at
        self._open: list[str] = []  # closing brackets of what is open
        self._next = _Next.VALUE
        self._key = ""  # the last one of the call itself
        self._starts: dict[str, int] = {}  # where the value of each key begins
        self._values: dict[str, str] = {}  # whole ones of the call itself, as they are written
        self._ends: dict[str, int] = {}  # behind the value of each key

    def feed(self, text: str) -> None:
        """More of the text; what stands behind the closing brace is not read."""
        self.text += text
        while self.can_be_call and self.end is None and self._step():
            pass

    @property
    def num_read(self) -> int:
        """The number of characters that were looked at."""
        return max(self._place, self._read)

    @property
    def arguments(self) -> str | None:
        """The arguments of a whole call as the text of a JSON object; None where they are none."""
        return _object_text(self._values.get(self._arguments_key, "null"))

    @property
    def arguments_end(self) -> int | None:
        """The place behind the arguments, once they are whole."""
        return self._ends.get(ARGUMENTS[0])

    @property
    def open_arguments(self) -> str:
        """The written part of the arguments where the text ends early."""
        if (written := self._values.get(self._arguments_key)) is not None:
            return _object_text(written) or ""
        start = self._starts.get(self._arguments_key)
        text = "" if start is None else self.text[start:]
        if text.startswith('"'):  # JSON within JSON
            characters = _CHARACTERS.match(text, 1)
            text = str(json.loads(f'"{characters[0]}"', strict=False)) if characters else ""
        return text if text.startswith("{") else ""

    @property
    def open_name(self) -> str:
        """The written part of the name where the text ends early, whole if no other begins so."""
        if self.name is not None:
            return self.name
        start = self._starts.get(NAME)
        written = "" if start is None else self.text[start + 1 :]
        beginning = written if "\\" not in written else ""
        fitting = [name for name in self._names if name.startswith(beginning)]
        return fitting[0] if len(fitting) == 1 else beginning

    @property
    def _arguments_key(self) -> str:
        """Name of the arguments that has a value, where both names are there."""
        given = [key for key in ARGUMENTS if key in self._starts]
        return next((key for key in given if self._values.get(key) != "null"), ARGUMENTS[0])

    def _step(self) -> bool:
        """Read the next part; False where it is not whole, or there is none."""
        spaces = _SPACES.match(self.text, self._place)
        self._place = spaces.end() if spaces else self._place
        if self._place == len(self.text):
            return False
        first = self.text[self._place]
        match self._next:
            case _Next.COLON:
                return self._read_mark(first, {":": _Next.VALUE})
            case _Next.MORE if first == ",":
                is_object = self._open[-1] == "}"
                return self._read_mark(first, {",": _Next.KEY if is_object else _Next.VALUE})
            case _Next.MORE | _Next.FIRST | _Next.FIRST_KEY if first == self._open[-1]:
                return self._close()
            case _Next.MORE:
                return self._fail()
            case _Next.KEY | _Next.FIRST_KEY:
                return self._read_string(is_key=True) if first == '"' else self._fail()
        return self._read_value(first)

    def _fail(self) -> bool:
        self.can_be_call = False
        return False

    def _read_mark(self, first: str, following: dict[str, _Next]) -> bool:
        if first not in following:
            return self._fail()
        self._place += 1
        self._next = following[first]
        return True

    def _read_value(self, first: str) -> bool:
        if self._is_own:
            self._starts[self._key] = self._place
            if self._key == NAME and first != '"':
                return self._fail()
            if self._key in ARGUMENTS and first not in '{"n':
                return self._fail()
        if first in "{[":
            if len(self._open) == MAX_DEPTH:
                return self._fail()
            self._open.append("}" if first == "{" else "]")
            self._place += 1
            self._next = _Next.FIRST_KEY if first == "{" else _Next.FIRST
            return True
        return self._read_string(is_key=False) if first == '"' else self._read_word()

    @property
    def _is_own(self) -> bool:
        """Whether what stands here belongs to the call itself, not to a part of it."""
        return len(self._open) == 1

    def _read_string(self, *, is_key: bool) -> bool:
        start = self._place
        characters = _CHARACTERS.match(self.text, max(self._read, start + 1))
        assert characters is not None, "it matches nothing too"
        end = self._read = characters.end()
        if end == len(self.text) or _OPEN_ESCAPE.fullmatch(self.text, end):
            self.can_be_call = self._may_go_on(start, is_key=is_key)
            return False
        if self.text[end] != '"':
            return self._fail()
        self._place, self._read = end + 1, 0
        if not is_key:
            return self._finish_value(start)
        self._next = _Next.COLON
        if self._is_own:
            key = json.loads(self.text[start : end + 1], strict=False)
            self._key = OTHER_NAMES.get(key, key) if self._keys is None else key
            if self._keys is not None and self._key not in self._keys:
                return self._fail()
        return True

    def _may_go_on(self, start: int, *, is_key: bool) -> bool:
        """Whether a string that is not whole may become a key or a name that there is."""
        known: Collection[str] | None = None
        if self._is_own and is_key:
            known = self._keys
        elif self._is_own and self._key == NAME:
            known = self._names
        if known is None:
            return True
        written = self.text[start + 1 :]
        return "\\" in written or any(each.startswith(written) for each in known)

    def _read_word(self) -> bool:
        start = self._place
        found = _WORD.match(self.text, start)
        word = found[0] if found else ""
        if start + len(word) == len(self.text):
            is_open = any(each.startswith(word) for each in _WORDS) or _OPEN_NUMBER.fullmatch(word)
            self.can_be_call = bool(is_open) and len(word) <= MAX_WORD_CHARACTERS
            return False
        if not (word in _WORDS or _NUMBER.fullmatch(word)) or len(word) > MAX_WORD_CHARACTERS:
            return self._fail()
        self._place += len(word)
        return self._finish_value(start)

    def _close(self) -> bool:
        self._open.pop()
        self._place += 1
        if not self._open:
            self.end = self._place
            if self.name is None or self.arguments is None:
                return self._fail()
            return False
        return self._finish_value(self._starts.get(self._key, 0))

    def _finish_value(self, start: int) -> bool:
        self._next = _Next.MORE
        if not self._is_own:
            return True
        written = self._values[self._key] = self.text[start : self._place]
        self._ends[self._key] = self._place
        if self._key == NAME:
            self.name = json.loads(written, strict=False)
            if self.name not in self._names:
                return self._fail()
        return True


def _object_text(written: str) -> str | None:
    """The text of an object, as it is written or from within a text; None for other values.

    Null and a text of nothing are an object of nothing.
    """
    try:
        value = json.loads(written, strict=False, parse_constant=_refuse)
        if isinstance(value, dict):
            return written if _is_strict(written) else json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str):
        return _object_text(value.strip() or "null")
    return "{}" if value is None else None


def _is_strict(written: str) -> bool:
    """Whether what was read is JSON for any reader, and a text for any encoder."""
    try:
        written.encode()
        json.loads(written)
    except ValueError:
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
