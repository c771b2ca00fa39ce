"""Compressed bodies, gzip and deflate, in both directions.

A body is inflated in pieces up to its bound, whatever its headers claim. The functions hold no
state, and zlib lets other threads run, so that long bodies belong on a thread: `is_long`.
"""

import zlib
from collections.abc import Iterable
from typing import TypeAlias

from service.api.wire import inflate
from service.errors import InvalidArgument, Unimplemented

Buffer: TypeAlias = bytes | bytearray | memoryview
LONG_BYTES = 2**16  # compressing as much takes over a millisecond of the event loop
WORTH_BYTES = 1_024  # a shorter answer fits into one packet anyway
SUPPORTED = "gzip, deflate"
_GZIP = zlib.MAX_WBITS | 16
# "deflate" is zlib's format by RFC 9110; some clients send the bare stream.
_FORMATS = {"gzip": (_GZIP,), "x-gzip": (_GZIP,), "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS)}
_ENCODINGS = {"gzip": _GZIP, "deflate": zlib.MAX_WBITS}
_PIECE_BYTES = 2**20
_LEVEL = (
    1  # floating-point numbers shrink by as little at any level, and 6 takes five times as long
)


def is_long(num_bytes: int) -> bool:
    """Whether to inflate or compress as many bytes on a thread."""
    return num_bytes > LONG_BYTES


def inflated(body: Buffer, encoding: str, max_bytes: int) -> Buffer:
    """The decompressed body of a request.

    Raises `Unimplemented` for an unknown encoding, `InvalidArgument` for a body that is not so
    encoded or has more than `max_bytes`.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _FORMATS:
        raise Unimplemented("Unsupported compression type")
    for window_bits in _FORMATS[encoding]:
        try:
            content = inflate(body, max_bytes, window_bits)
        except zlib.error:
            continue
        if len(content) > max_bytes:
            raise InvalidArgument(f"the body has more than {max_bytes} bytes once it is inflated")
        return content
    raise InvalidArgument(f"the body is not whole data of Content-Encoding '{encoding}'")


def best_encoding(accepted: str) -> str:
    """The encoding of an `Accept-Encoding` header with the largest weight, the first of several.

    `identity` where none is acceptable: an answer that cannot be read is of no use.
    """
    best, best_weight = "identity", 0.0
    for part in accepted.split(","):
        name, _, rest = part.partition(";")
        name, weight = name.strip().lower(), _weight(rest)
        if name == "*":
            name = "gzip"
        if (name in _ENCODINGS or name == "identity") and weight > best_weight:
            best, best_weight = name, weight
    return best


def _weight(parameters: str) -> float:
    """The value of `q=`; 1 without, and 0 where it is not a number from 0 to 1."""
    key, _, value = parameters.partition("=")
    if key.strip().lower() != "q":
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def compressed(buffers: Iterable[bytes | memoryview], encoding: str) -> list[bytes]:
    """The buffers as one compressed body, in pieces."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _ENCODINGS[encoding])
    pieces = [
        stream.compress(buffer[start : start + _PIECE_BYTES])
        for buffer in buffers
        for start in range(0, len(buffer), _PIECE_BYTES)
    ]
    return [piece for piece in (*pieces, stream.flush()) if piece]
