"""The cost of a message, from its bytes before it is parsed: inflated size, and parts.

Parsed, an empty message inside another takes ninety bytes of memory for two on the wire, and a
third of a microsecond on the event loop: a request of 256 MiB of them took 11 GiB. Counting them
stops at the bound. Of packed numbers, which take a byte or more each, every `PACKED_BYTES` are one
part: 16 MiB of them, as many as the default bound allows, take 0.8 s to be an array.
See the encoding of protocol buffers, https://protobuf.dev/programming-guides/encoding/
"""

import zlib
from dataclasses import dataclass, field

from google.protobuf.descriptor import Descriptor

SMALL_BYTES = 4_096  # not worth counting: parsed, at most some 200 KiB
PACKED_BYTES = 128  # of numbers in one field, that count as one part
MAX_VARINT_BYTES = 10
GZIP = b"\x1f\x8b"  # no message begins so: there is no seventh kind of field
DEFLATE = b"\x78"  # field 15 as a number, which no request has
MAX_INFLATION = 1_032  # times as many bytes as deflate's, https://zlib.net/zlib_tech.html
MAX_MEMBERS = 8_192  # of gzip: block-wise writers make one of 64 KiB, and 256 MiB are allowed
ANY_FORMAT = zlib.MAX_WBITS | 32  # gzip or zlib, as the bytes say
_PIECE_TAKEN, _PIECE_GIVEN = 2**16, 2**20  # bytes; zlib copies what it has not taken yet
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED_64: 8, _FIXED_32: 4}


class GroupError(Exception):
    """A message has a group, which only protobuf knows the end of."""


@dataclass(slots=True, eq=False)
class Inner:
    """The fields of a message, by number, that may have more parts than one."""

    messages: "dict[int, Inner]" = field(default_factory=dict)
    packed: set[int] = field(default_factory=set)


def inner_messages(message: Descriptor, known: dict[str, Inner] | None = None) -> Inner:
    """The fields of a message that are messages themselves, and theirs, and packed numbers."""
    known = {} if known is None else known
    if message.full_name not in known:
        known[message.full_name] = inner = Inner()
        for each in message.fields:
            if each.message_type is not None:
                inner.messages[each.number] = inner_messages(each.message_type, known)
            elif each.is_packed:
                inner.packed.add(each.number)
    return known[message.full_name]


def is_compressed(message: bytes) -> bool:
    """Whether it begins as compressed ones do; see above."""
    return message.startswith((GZIP, DEFLATE))


def inflated(message: bytes, limit: int) -> bytes | bytearray:
    """The decompressed message of gzip or deflate; other messages unchanged.

    Never much more than `limit` bytes, for the caller to refuse: gRPC would inflate all of it
    before it looks at its size, and a thousandth of that is enough to send. In pieces: zlib joins
    its output while it holds the interpreter.
    """
    if not is_compressed(message):
        return message
    try:
        return inflate(message, limit, ANY_FORMAT)
    except zlib.error:
        return message


def inflate(message: bytes | bytearray | memoryview, limit: int, window_bits: int) -> bytearray:
    """The decompressed message, or its beginning where that has more than `limit` bytes.

    Gzip's members follow each other (RFC 1952, 2.2). Raises `zlib.error` where the message is not
    in zlib's format of `window_bits`, is cut short, or has other bytes behind its end.
    """
    content, rest = bytearray(), memoryview(message)
    for _ in range(MAX_MEMBERS):
        rest = _inflate_member(rest, content, limit, window_bits)
        if not len(rest) or len(content) > limit:
            return content
        if window_bits <= zlib.MAX_WBITS or rest[: len(GZIP)] != GZIP:
            raise zlib.error(f"{len(rest)} bytes follow the end of the compressed message")
    raise zlib.error(f"the message has more than {MAX_MEMBERS} members")


def _inflate_member(
    message: memoryview, content: bytearray, limit: int, window_bits: int
) -> memoryview:
    """The rest of a message behind its first member, whose bytes are added to `content`."""
    stream = zlib.decompressobj(window_bits)
    for start in range(0, len(message), _PIECE_TAKEN):
        piece = message[start : start + _PIECE_TAKEN]
        taken: bytes | memoryview = piece
        while taken and not stream.eof and len(content) <= limit:
            content += stream.decompress(taken, min(_PIECE_GIVEN, limit + 1 - len(content)))
            taken = stream.unconsumed_tail
        if stream.eof:
            return message[start + len(piece) - len(stream.unused_data) :]
        if len(content) > limit:
            return message[len(message) :]
    # All is taken, and the last of it may still be to give.
    while len(content) <= limit and (given := stream.decompress(b"", _PIECE_GIVEN)):
        content += given
    if not stream.eof and len(content) <= limit:
        raise zlib.error("the message is cut short")
    return message[len(message) :]


def cut_out(message: memoryview, number: int) -> tuple[bytes, list[memoryview]]:
    """A message without its bytes of field `number`, and these as views, in order.

    Raises `IndexError` for a message that is cut short, `GroupError` where it has a group.
    """
    position, kept_from = 0, 0
    rest, contents = bytearray(), []
    while position < len(message):
        start = position
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _BYTES:
            size, position = _varint(message, position)
            if position + size > len(message):
                raise IndexError("a field is cut short")
            if tag >> 3 == number:
                contents.append(message[position : position + size])
                rest += message[kept_from:start]
                kept_from = position + size
            position += size
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind in _FIXED_SIZES:
            position += _FIXED_SIZES[kind]
        else:
            raise GroupError
    rest += message[kept_from:]
    return bytes(rest), contents


def bytes_prefix(number: int, size: int) -> bytes:
    """The prefix of a field's bytes: its number and their count."""
    prefix = bytearray()
    for value in (number << 3 | _BYTES, size):
        while value >= 0x80:
            prefix.append(value & 0x7F | 0x80)
            value >>= 7
        prefix.append(value)
    return bytes(prefix)


def count_parts(message: bytes | bytearray, inner: Inner, limit: int) -> int:
    """The fields of a message and of those inside it; beyond `limit`, some number above it.

    Bytes that are no message have some number of parts too.
    """
    if len(message) <= SMALL_BYTES:
        return 0
    try:
        return _count(message, 0, len(message), inner, limit)
    except IndexError:  # cut short, or a number without end: parsing will say so
        return 0


def _count(message: bytes | bytearray, start: int, end: int, inner: Inner, limit: int) -> int:
    position, count = start, 0
    while position < end and count <= limit:
        tag, position = _varint(message, position)
        count += 1
        kind = tag & 7
        if kind == _BYTES:
            size, position = _varint(message, position)
            if (among := inner.messages.get(tag >> 3)) is not None:
                last = min(position + size, end)
                count += _count(message, position, last, among, limit - count)
            elif tag >> 3 in inner.packed:
                count += size // PACKED_BYTES
            position += size
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind in _FIXED_SIZES:
            position += _FIXED_SIZES[kind]
    return count


def _varint(message: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The number at a position, and where the next thing begins."""
    byte = message[position]
    if byte < 0x80:
        return byte, position + 1
    number = byte & 0x7F
    for shift in range(7, 7 * MAX_VARINT_BYTES, 7):
        position += 1
        byte = message[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position + 1
    raise IndexError("a number of more than ten bytes")
