"""The parts of a text of JSON, counted before it is decoded.

    parts = objects + lists + texts, names included + numbers, null, true and false / 4

Small things take far more memory and time than their bytes: `{},` is 64 bytes of memory for three,
`"ab",` 60 for five, `300,` 40 for four. Most bodies are known to be small by the number of their
signs, in strings or not. Of others the signs outside strings are counted by NumPy, a piece at a
time, while other threads have the interpreter. Pure, for any thread.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from service.errors import InvalidArgument

Buffer: TypeAlias = bytes | bytearray | memoryview
NUMBERS_PER_PART = 4
# Of memory, what a body takes beside itself until it is answered: its texts as Python's, as
# messages and as JSON again, and each part as an object and as a message.
COPIES, PART_BYTES = 3, 200
CHARACTER_BYTES = 6  # at most, of a character of a text in JSON: \\u1234; others are two of these
_PIECE_BYTES = 2**18
_COUNTED_AT_ONCE_BYTES = 2**20
_QUOTE, _COMMA, _BACKSLASH = ord('"'), ord(","), ord("\\")
_OPENS, _CLOSES = (ord("["), ord("{")), (ord("]"), ord("}"))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(_OPENS)], _STEPS[list(_CLOSES)] = 1, -1


@dataclass(frozen=True, slots=True)
class JsonParts:
    """The number of each kind of part, or what it is at most, and the nesting."""

    num_bytes: int
    num_containers: int
    num_texts: int
    num_commas: int
    depth: int
    longest_text_bytes: int = 0  # at least; where the texts were looked at

    @property
    def count(self) -> int:
        return self.num_containers + self.num_texts + self.num_numbers

    @property
    def num_numbers(self) -> int:
        """The parts that numbers are, by the commas behind them."""
        return self.num_commas // NUMBERS_PER_PART

    @property
    def memory_bytes(self) -> int:
        """About what it takes beside the body itself."""
        return COPIES * self.num_bytes + PART_BYTES * self.count


def at_most(text: bytes | bytearray) -> JsonParts:
    """Upper bounds of the parts by counting signs, in strings or not."""
    containers = text.count(b"[") + text.count(b"{")
    quotes = text.count(b'"')
    return JsonParts(len(text), containers, (quotes + 1) // 2, text.count(b","), containers)


def counted(text: Buffer, max_parts: int, *, are_numbers_free: bool = False) -> JsonParts:
    """The parts of a text; where they are more than `max_parts`, some number above it.

    Free numbers do not end the counting.
    """
    view = memoryview(text)
    containers = quotes = commas = depth = deepest = longest = text_start = 0
    is_inside = is_escaped = False
    for start in range(0, len(view), _PIECE_BYTES):
        piece = bytes(view[start : start + _PIECE_BYTES])
        if is_escaped:
            piece = b"x" + piece[1:]
        is_escaped = bool((len(piece) - len(piece.rstrip(b"\\"))) % 2)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"xx").replace(b'\\"', b"xx")
        signs = np.frombuffer(piece, np.uint8)
        is_quote = signs == _QUOTE
        places = np.flatnonzero(is_quote)
        quotes += len(places)
        if len(places):  # those of others begin or end in this piece
            if is_inside:
                longest = max(longest, start + int(places[0]) - text_start)
            longest = max(longest, int(np.diff(places)[int(is_inside) :: 2].max(initial=0)))
            text_start = start + int(places[-1])
        inside = np.logical_xor.accumulate(is_quote) ^ is_inside
        is_inside = bool(inside[-1])
        outside = signs[~inside]
        commas += int(np.count_nonzero(outside == _COMMA))
        steps = _STEPS[outside]
        steps = steps[steps != 0]
        if len(steps):
            containers += int(np.count_nonzero(steps == 1))
            depths = np.cumsum(steps, dtype=np.int32)
            deepest = max(deepest, depth + int(depths.max()))
            depth += int(depths[-1])
        parts = JsonParts(len(view), containers, (quotes + 1) // 2, commas, deepest, longest)
        if parts.count - are_numbers_free * parts.num_numbers > max_parts:
            return parts
    return JsonParts(len(view), containers, (quotes + 1) // 2, commas, deepest, longest)


def check_json(
    text: bytes | bytearray, max_parts: int, max_depth: int, max_characters: int = 0
) -> JsonParts:
    """The parts of a text within its bounds; 0 is no bound. Raises `InvalidArgument`."""
    if len(text) <= _COUNTED_AT_ONCE_BYTES:  # as more would keep the interpreter for long
        parts = at_most(text)
        if parts.count <= max_parts and parts.depth <= max_depth:
            return parts
    parts = counted(text, max_parts)
    check_parts(parts, max_parts)
    if parts.longest_text_bytes > max_characters > 0:
        check_characters(parts.longest_text_bytes - 1, text, max_characters)  # but for its quote
    if parts.depth > max_depth:
        raise InvalidArgument(
            f"the body is nested {parts.depth} deep, expected at most {max_depth}: see "
            "--http-max-json-depth"
        )
    return parts


def check_characters(num_bytes: int, text: Buffer, max_characters: int) -> None:
    """Raise `InvalidArgument` for a string that surely has more characters than a text may have.

    `num_bytes` are the string's, and `text` is what it stands in: the bytes that are not the first
    of a character, and escapes, are counted in all of it, as most bodies have few or many of them.
    """
    view = memoryview(text)
    escapes = following = 0
    for start in range(0, len(view), _PIECE_BYTES):
        piece = np.frombuffer(view[start : start + _PIECE_BYTES], np.uint8)
        escapes += int(np.count_nonzero(piece == _BACKSLASH))
        following += int(np.count_nonzero((piece & 0xC0) == 0x80))  # UTF-8's: 10xxxxxx
    fewest = max(num_bytes - following - CHARACTER_BYTES * escapes, num_bytes // CHARACTER_BYTES)
    if fewest > max_characters:
        raise InvalidArgument(
            f"the body has a text of {fewest} characters or more, the server takes at most "
            f"{max_characters}: see --max-text-characters"
        )


def check_parts(parts: JsonParts, max_parts: int) -> None:
    """Raise `InvalidArgument` for more than a message may have."""
    if parts.count > max_parts:
        raise InvalidArgument(
            f"the body has more than {max_parts} parts, which are its objects, lists and texts, "
            f"{NUMBERS_PER_PART} numbers counting as one: send it in several requests, or see "
            "--max-message-parts"
        )
