"""The `data` of a tensor in JSON: lists, flat or nested, to and from the bytes of the tensor.

Long lists are converted in pieces: the parser keeps the interpreter from other threads for as long
as one call takes, and 16 MiB of numbers are a third of a second. Pure, for any thread.
"""

import itertools
import json
from collections.abc import Iterator
from functools import cache
from types import GenericAlias
from typing import Any, cast

import msgspec
import numpy as np

from service.contract.tensors import BF16, BYTES, DATATYPES, Datatype, strings_from_raw
from service.errors import InvalidArgument
from service.http.wire.json_faults import of_record

MAX_DEPTH = 100  # Triton's
PIECE_BYTES = 2**17  # of JSON that one call parses, in about half a millisecond
_PIECE_VALUES = 2**13  # that one call writes
_PIECE_ROWS = 2**10
_BINARY_ONLY = ("FP16", BF16)
_KINDS = {"b": bool, "i": int, "u": int, "f": float, "O": str}


def read_data(data: msgspec.Raw, datatype_name: str, name: str) -> bytes | list[bytes]:
    """A tensor's bytes, or a list of its strings; of an unknown type, none: it is refused later.

    Raises `InvalidArgument` for what is not of that type, or out of its range.
    """
    if datatype_name in _BINARY_ONLY:
        raise InvalidArgument(
            f"receiving {datatype_name} data via JSON is not supported. Please use the binary data "
            f"format for input {name}"
        )
    datatype = DATATYPES.get(datatype_name)
    if datatype is None:
        return b""
    depth = _depth(data, name)
    try:
        if datatype.name == BYTES:
            return [text.encode() for text in _values(memoryview(data), depth, str)]
        kind = _KINDS[datatype.dtype.kind]
        return b"".join(
            _numbers(_values(piece, piece_depth, kind), datatype)
            for piece, piece_depth in _pieces(memoryview(data), depth)
        )
    except (msgspec.MsgspecError, OverflowError, UnicodeDecodeError) as error:
        reason = str(error)
        if isinstance(error, msgspec.ValidationError):
            reason = of_record(error, "data").text
        raise InvalidArgument(f"Unable to parse 'data' of input '{name}': {reason}") from error


def _depth(data: msgspec.Raw, name: str) -> int:
    """The number of lists inside each other at the beginning, which all values have to be in."""
    view = memoryview(data)
    if bytes(view[:1]) == b"[" and bytes(view[1:2]) not in (b"[", b" ", b"\t", b"\r", b"\n"):
        return 1  # as most are
    beginning = bytes(view[: 8 * MAX_DEPTH]).translate(None, b" \t\r\n")
    depth = len(beginning) - len(beginning.lstrip(b"["))
    if not depth:
        raise InvalidArgument(f"Unable to parse 'data' of input '{name}': expected a list")
    if depth > MAX_DEPTH:
        raise InvalidArgument(
            f"Unable to parse 'data' of input '{name}': JSON nesting depth exceeds maximum allowed "
            f"limit ({MAX_DEPTH})"
        )
    return depth


def _values(text: bytes | memoryview, depth: int, kind: type) -> list[Any]:
    values: list[Any] = _decoder(depth, kind).decode(text)
    for _ in range(depth - 1):
        values = list(itertools.chain.from_iterable(values))
    return values


@cache
def _decoder(depth: int, kind: object) -> msgspec.json.Decoder[Any]:
    for _ in range(depth):
        kind = GenericAlias(list, (kind,))
    return msgspec.json.Decoder(cast("Any", kind))


def _numbers(values: list[Any], datatype: Datatype) -> bytes:
    if datatype.name != "FP32":
        return np.array(values, datatype.dtype).tobytes()
    with np.errstate(over="ignore"):
        narrow = np.array(values, np.float64).astype(datatype.dtype)
    if not np.isfinite(narrow).all():  # JSON has finite numbers only
        raise OverflowError("a number is out of bounds for float32")
    return narrow.tobytes()


def _pieces(text: memoryview, depth: int) -> Iterator[tuple[bytes | memoryview, int]]:
    """Lists that hold the values of a list of numbers, in order, and their depths."""
    if len(text) <= PIECE_BYTES:
        yield text, depth
    elif depth == 1:
        yield from ((piece, 1) for piece in _cut_at_commas(bytes(text)))
    else:
        rows = _decoder(1, msgspec.Raw).decode(text)
        for start in range(0, len(rows), _PIECE_ROWS):
            some = rows[start : start + _PIECE_ROWS]
            if sum(map(_length, some)) <= PIECE_BYTES:
                yield b"[" + b",".join(some) + b"]", depth
            else:
                for row in some:
                    yield from _pieces(memoryview(row), depth - 1)


def _length(row: msgspec.Raw) -> int:
    return len(memoryview(row))


def _cut_at_commas(text: bytes) -> Iterator[bytes]:
    """The values as shorter lists; of numbers, which have no comma inside."""
    start, end = text.index(b"[") + 1, text.rindex(b"]")
    while (comma := text.find(b",", start + PIECE_BYTES, end)) >= 0:
        yield b"[" + text[start:comma] + b"]"
        start = comma + 1
    yield b"[" + text[start:end] + b"]"


def write_data(raw: bytes | memoryview, datatype_name: str, count: int, name: str) -> bytes:
    """The values as a flat list.

    Numbers that are not finite are written as Triton does, `NaN` and `Infinity`. Raises
    `InvalidArgument` for values that JSON has no form for.
    """
    if datatype_name in _BINARY_ONLY:
        raise InvalidArgument(
            f"sending {datatype_name} data via JSON is not supported. Please use the binary data "
            f"format for output '{name}'"
        )
    if datatype_name == BYTES:
        return _write_strings(bytes(raw), count, name)
    array = np.frombuffer(raw, DATATYPES[datatype_name].dtype)
    lists = [
        _write_numbers(array[start : start + _PIECE_VALUES])[1:-1]
        for start in range(0, len(array), _PIECE_VALUES)
    ]
    return b"[" + b",".join(lists) + b"]"


def _write_numbers(numbers: np.ndarray) -> bytes:
    values = numbers.tolist()
    text = msgspec.json.encode(values)
    # It writes null for numbers that are not finite, and for nothing else here.
    return json.dumps(values).encode() if b"null" in text else text


def _write_strings(raw: bytes, count: int, name: str) -> bytes:
    strings = strings_from_raw(raw, count, name, "")
    try:
        return msgspec.json.encode([text.decode() for text in strings])
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"output '{name}' has a string that is not UTF-8: request it with 'binary_data'"
        ) from error
