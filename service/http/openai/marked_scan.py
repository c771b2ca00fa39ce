"""A call of a function whose name and arguments stand between marks, read piece by piece.

The reader knows at each character whether what was read can still become such a call. What is read
may have other spaces around its marks. Pure, and in time linear in the text.
"""

import json
import re
from collections.abc import Collection, Generator, Mapping
from typing import Any

from service.families.call_forms import CallForm, Keys
from service.http.openai.call_scan import CallScan
from service.http.openai.literal_scan import LiteralScan

Schema = Mapping[str, Any]
_SPACES = re.compile(r"[ \t\n\r]*")
MAX_BETWEEN = 64  # characters between a name and the mark behind it
MAX_KEY_CHARACTERS = 256
_WORDS = {"True": "true", "False": "false", "None": "null"}  # as templates write them


class _NoCallError(Exception):
    """A text that cannot become a call."""


class MarkedScan:
    """One call, from behind the mark that begins it. `_place` is behind what is read."""

    def __init__(
        self, form: CallForm, names: Collection[str], schema: Mapping[str, Schema]
    ) -> None:
        self._form, self._names, self._schemas = form, names, schema
        self.text = ""
        self.can_be_call = True
        self.end: int | None = None
        self.name: str | None = None
        self.id = ""  # where the form has one
        self._place = self._seen = 0
        self._start: int | None = None  # of the name, or of a value that is not whole
        self._arguments: list[str] = []  # whole ones, by keys
        self._key: str | None = None  # of a value that is not whole
        self._object: CallScan | LiteralScan | None = None
        self._reading = self._read()
        next(self._reading)

    def feed(self, text: str) -> None:
        """More of the text; what stands behind the call is not read."""
        self.text += text
        if not self.can_be_call or self.end is not None:
            return
        try:
            next(self._reading)
        except StopIteration:
            self.end = self._place
        except _NoCallError:
            self.can_be_call = False

    @property
    def num_read(self) -> int:
        """The number of characters that were looked at."""
        return max(self._seen, self._place + (self._object.num_read if self._object else 0))

    @property
    def arguments(self) -> str | None:
        """The arguments of a whole call as the text of a JSON object."""
        if self._object is not None:
            return self._object.arguments
        return f"{{{', '.join(self._arguments)}}}"

    @property
    def open_arguments(self) -> str:
        """The written part of the arguments where the text ends early."""
        if self._object is not None:
            return self._object.open_arguments
        if not self._arguments and self._key is None:
            return ""
        return f"{{{', '.join([*self._arguments, *self._open_value()])}"

    @property
    def open_name(self) -> str:
        """The written part of the name where the text ends early, whole if no other begins so."""
        if self.name is not None:
            return self.name
        written = "" if self._start is None else self.text[self._start :].strip()
        fitting = [each for each in self._names if self._may_be(each, written)]
        return fitting[0] if len(fitting) == 1 else written

    def _may_be(self, name: str, written: str) -> bool:
        return any(_squeezed(name + end).startswith(_squeezed(written)) for end in self._name_ends)

    @property
    def _name_ends(self) -> tuple[str, ...]:
        return self._form.name_ends or (self._form.named.strip(),)

    def _open_value(self) -> list[str]:
        keys = self._form.keys
        if self._key is None or keys is None or kinds_of(self._schema_of(self._key)) != {"string"}:
            return []
        written = self.text[self._start :].removeprefix("\n" if keys.close[-1] == "\n" else "")
        close = keys.value_close.rstrip()
        lengths = range(min(len(written), len(close)), 0, -1)
        num_open = next((each for each in lengths if close.startswith(written[-each:])), 0)
        value = json.dumps(written[: len(written) - num_open], ensure_ascii=False)
        return [f"{json.dumps(self._key, ensure_ascii=False)}: {value[:-1]}"]

    def _read(self) -> Generator[None]:
        form = self._form
        yield
        yield from self._mark(form.inner)
        yield from self._read_name()
        if form.keys is not None:
            yield from self._read_values(form.keys)
        elif form.literals is not None:
            yield from self._read_whole(LiteralScan(form.literals))
        else:
            yield from self._read_object()
        yield from self._mark(form.close)

    def _pass_spaces(self) -> None:
        spaces = _SPACES.match(self.text, self._place)
        self._place = spaces.end() if spaces else self._place

    def _begins(self, *marks: str) -> str:
        """Which mark stands here; empty where more text is needed. Raises `_NoCallError`."""
        self._pass_spaces()
        for mark in marks:
            if self.text.startswith(mark, self._place):
                return mark
        rest = self.text[self._place : self._place + max(map(len, marks))]
        if not any(mark.startswith(rest) for mark in marks):
            raise _NoCallError
        return ""

    def _mark(self, *marks: str) -> Generator[None, None, str]:
        """Pass one of these marks, and spaces before it. Raises `_NoCallError`."""
        if not any(marks):
            return ""
        while not (mark := self._begins(*marks)):
            yield
        self._place += len(mark)
        return mark

    def _until(self, mark: str, most: int | None = None) -> Generator[None, None, str]:
        """The text before a mark, which is passed. Raises `_NoCallError` where it is longer."""
        start = self._seen = self._place
        while (end := self.text.find(mark, self._seen)) < 0:
            self._seen = max(start, len(self.text) - len(mark) + 1)
            if most is not None and self._seen - start > most:
                raise _NoCallError
            yield
        self._place = end + len(mark)
        return self.text[start:end]

    def _read_name(self) -> Generator[None]:
        form, ends = self._form, self._name_ends
        self._start = start = self._place
        most = max(map(len, (*self._names, ""))) + MAX_BETWEEN
        while True:
            self._pass_spaces()
            if self._place - start > MAX_BETWEEN:
                raise _NoCallError
            written = self.text[self._place : self._place + most]
            places = [(place, mark) for mark in ends if (place := written.find(mark)) > 0]
            if places:
                break
            is_open = len(written) < most
            if not is_open or not any(self._may_be(each, written) for each in self._names):
                raise _NoCallError
            yield
        place, mark = min(places)
        name = written[:place].strip()
        if name not in self._names:
            raise _NoCallError
        self.name = name
        self._place += place
        last = form.named.split()[-1:]
        if not form.name_ends:
            self._place += len(mark)
        elif last:
            behind = last[0][last[0].rfind("<") :]
            between = yield from self._until(behind, MAX_BETWEEN)
            if form.index:
                self.id = f"functions.{name}{between.strip()}"

    def _read_object(self) -> Generator[None]:
        assert self.name is not None, "it stands before the arguments"
        head = f'{{"name": {json.dumps(self.name)}, "arguments": '
        scan = CallScan({self.name}, is_marked=True)
        scan.feed(head)
        yield from self._read_whole(scan, len(head))

    def _read_whole(self, scan: CallScan | LiteralScan, num_before: int = 0) -> Generator[None]:
        """Read arguments by a scan, which was given `num_before` characters before them."""
        self._object = scan
        start = fed = self._place
        while True:
            scan.feed(self.text[fed:])
            fed = len(self.text)
            if scan.arguments_end is not None:
                break
            if not scan.can_be_call:
                raise _NoCallError
            yield
        if scan.arguments is None:
            raise _NoCallError
        self._place = start + scan.arguments_end - num_before

    def _read_values(self, keys: Keys) -> Generator[None]:
        close = self._form.close
        while (yield from self._mark_of_values(keys.open, close)):
            first, *others = keys.close.split()
            key = yield from self._until(first, MAX_KEY_CHARACTERS)
            is_text = None
            if keys.close_of_others:
                other = keys.close_of_others.split()[-1]
                is_text = (yield from self._mark(others[-1], other)) == others[-1]
            else:
                for mark in others:
                    yield from self._mark(mark)
            self._key, self._start = key.strip(), self._place
            value = yield from self._until(keys.value_close.strip())
            if keys.close.endswith("\n"):
                value = value.removeprefix("\n")
            if keys.value_close.startswith("\n"):
                value = value.removesuffix("\n")
            written = _written(value, self._schema_of(self._key), is_text=is_text)
            self._arguments.append(f"{json.dumps(self._key, ensure_ascii=False)}: {written}")
            self._key = None

    def _mark_of_values(self, opening: str, close: str) -> Generator[None, None, bool]:
        """Whether another value follows, whose mark is passed."""
        while not (mark := self._begins(opening, close)):
            yield
        self._place += len(opening) if mark == opening else 0
        return mark == opening

    def _schema_of(self, key: str) -> Schema:
        root = self._schemas.get(self.name or "", {})
        found = root.get("properties", {}).get(key, {}) if isinstance(root, Mapping) else {}
        return found if isinstance(found, Mapping) else {}


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


def _written(value: str, schema: Schema, *, is_text: bool | None) -> str:
    """A value as JSON, of the type that its schema says; without one JSON where it is some."""
    kinds = kinds_of(schema) if is_text is None else {"string"} if is_text else set()
    if kinds != {"string"}:
        bare = value.strip()
        text = _WORDS.get(bare, bare)
        try:
            kind = _kind_of(json.loads(text, parse_constant=_refuse))
        except (ValueError, RecursionError):
            kind = ""
        if kind and (not kinds or kind in kinds - {"string"}):
            return text
        if kind == "integer" and "number" in kinds:
            return text
    return json.dumps(value, ensure_ascii=False)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def kinds_of(schema: Schema) -> set[str]:
    """The types of JSON that a schema allows; empty where it does not say."""
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {each for each in named if isinstance(each, str)}
    if isinstance(schema.get("enum"), list):
        return {_kind_of(each) for each in schema["enum"]}
    if "const" in schema:
        return {_kind_of(schema["const"])}
    for key in ("anyOf", "oneOf"):
        parts = [kinds_of(each) for each in schema.get(key, ()) if isinstance(each, Mapping)]
        if parts:
            return set().union(*parts) if all(parts) else set()
    return set()


def _kind_of(value: object) -> str:
    """The type of JSON of a value."""
    if value is None:
        return "null"
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")
