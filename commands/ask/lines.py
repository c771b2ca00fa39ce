"""The texts for a command: its arguments, or the lines of a stream.

A stream is read as its lines are taken, so any number of lines is possible: only one block and the
rest of a line are in memory. Knows nothing of requests or terminals. One thread at a time.
"""

import io
import os
import select
import stat
from collections import deque
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple, Protocol

BLOCK_BYTES = 2**16
MAX_LINE_BYTES = 2**22  # the million characters that a server takes by default, four bytes each
MAX_TAKEN_CHARACTERS = 2**20  # beyond it no more lines are taken together
BYTE_ORDER_MARK = "\ufeff"
EMPTY = "is empty"  # the fault of an empty line, where these are kept


class Line(NamedTuple):
    """One text; `fault` is the reason why it cannot be sent."""

    number: int  # from 1
    text: str
    place: int  # of its end in the source, in the units of `Texts.total`
    fault: str = ""


class Texts(Protocol):
    """A source of texts."""

    @property
    def noun(self) -> str:
        """The noun for one text in messages."""
        ...

    @property
    def num_empty(self) -> int:
        """The number of skipped lines."""
        ...

    @property
    def total(self) -> int | None:
        """The place of the last line; None if it is unknown."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether all texts were taken."""
        ...

    def take(self, most: int) -> list[Line]:
        """At most `most` texts that are available, after waiting for one; empty at the end."""
        ...


class GivenTexts:
    """The arguments, with empty ones."""

    noun = "text"
    num_empty = 0

    def __init__(self, texts: Sequence[str]) -> None:
        self._lines = deque(
            Line(number, text, number, "" if _is_unicode(text) else "is not UTF-8")
            for number, text in enumerate(texts, 1)
        )
        self.total = len(texts)

    @property
    def has_ended(self) -> bool:
        return not self._lines

    def take(self, most: int) -> list[Line]:
        return take_first(self._lines, most)


TextOf = Callable[[str], tuple[str, str]]  # of a line's content, the text and the fault


class StreamedTexts:
    """The lines of a stream that are not empty; one that is not UTF-8 or too long has a fault."""

    noun = "line"

    def __init__(
        self,
        stream: BinaryIO,
        *,
        num_before: int = 0,
        text_of: TextOf | None = None,
        keeps_empty: bool = False,
    ) -> None:
        """The stream may begin behind some lines: `num_before` of a file, at its place.

        `text_of` finds the text in a line's content. With `keeps_empty`, empty lines have a fault.
        """
        # The raw stream: a buffer would wait for a full block, and a thread that waits for input
        # would hold the buffer's lock while the interpreter ends.
        self._stream = getattr(stream, "raw", stream)
        self._place = self._stream.tell() if num_before else 0
        num_left = _size_of(self._stream)
        self.total = None if num_left is None else self._place + num_left
        self.num_empty = 0
        self._number = num_before
        self._text_of = text_of
        self._keeps_empty = keeps_empty
        self._rest = b""  # of a line whose end is not read
        self._is_open = True
        self._ready: deque[Line] = deque()

    @property
    def has_ended(self) -> bool:
        return not self._is_open and not self._ready

    def take(self, most: int) -> list[Line]:
        while self._is_open and (
            not self._ready or (len(self._ready) < most and _is_readable(self._stream))
        ):
            self._read()
        return take_first(self._ready, most)

    def _read(self) -> None:
        block = self._stream.read(BLOCK_BYTES) or b""
        *whole, rest = (self._rest + block).split(b"\n")
        if not block and rest:
            whole.append(rest)
        self._is_open = bool(block)
        self._rest = rest[: MAX_LINE_BYTES + 1]  # enough to see that it is too long
        for content in whole:
            self._add(content)

    def _add(self, content: bytes) -> None:
        self._number += 1
        self._place += len(content) + 1
        text, fault = "", ""
        try:
            text = content.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            fault = f"is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}"
        if len(content) > MAX_LINE_BYTES:
            text, fault = "", f"has more than {MAX_LINE_BYTES} bytes, which is the limit"
        if self._number == 1:
            text = text.removeprefix(BYTE_ORDER_MARK)
        if not (text.strip() or fault):
            self.num_empty += 1
            fault = EMPTY if self._keeps_empty else ""
        elif self._text_of is not None and not fault:
            text, fault = self._text_of(text)
            self.num_empty += fault == EMPTY
        if text.strip() or fault:
            self._ready.append(Line(self._number, text, self._place, fault))


def _is_unicode(text: str) -> bool:
    """Whether an argument is UTF-8: Python keeps its other bytes as surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def take_first(lines: deque[Line], most: int) -> list[Line]:
    """The first lines, at least one if there is any."""
    taken: list[Line] = []
    num_characters = 0
    while lines and len(taken) < most:
        num_characters += len(lines[0].text)
        if taken and num_characters > MAX_TAKEN_CHARACTERS:
            break
        taken.append(lines.popleft())
    return taken


def _size_of(stream: BinaryIO) -> int | None:
    """The bytes that are left of a file; None for a pipe or a terminal."""
    try:
        status = os.fstat(stream.fileno())
        return status.st_size - stream.tell() if stat.S_ISREG(status.st_mode) else None
    except (OSError, io.UnsupportedOperation):
        return None


def _is_readable(stream: BinaryIO) -> bool:
    """Whether reading would not wait."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError, io.UnsupportedOperation):  # in memory
        return True
