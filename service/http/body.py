"""Reads the body of a request within its bounds, inflates it, and decodes its JSON.

The bytes of a body count as bytes in flight as they come, and until the request is answered.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from service.api.admission import Admission
from service.errors import InvalidArgument, Unimplemented
from service.http.numbers import decode_number
from service.http.status import HttpError, invalid
from service.http.wire.compression import SUPPORTED, inflated, is_long
from service.http.wire.json_faults import of_record
from service.http.wire.json_parts import JsonParts
from service.http.wire.json_parts import check_json as parts_within
from service.settings import Settings

T = TypeVar("T")
Body: TypeAlias = bytes | bytearray
LEAST = 1_000_000  # characters of a text that are decoded however few texts may have
LONG_JOIN_BYTES = 2**22  # copied in about a millisecond
FEW = 16  # times as many bytes, at least, that one inflates to before it is left to a thread


class Incoming(Protocol):
    """A request whose body is still to be read."""

    path: str
    headers: dict[bytes, bytes]
    receive: Callable[[], Awaitable[dict[str, Any]]]

    @property
    def is_received(self) -> bool:
        """Whether the body is there, as far as it was not taken yet."""
        ...

    def header(self, name: str) -> str:
        """The value of a header, its name in lowercase; nothing where it is absent."""
        ...


class FieldCheck(Protocol):
    """The attribute `REFUSED` of a kind of record: what its bodies may not have."""

    def check(self, body: Body) -> None:
        """Raise `HttpError` for a body that has a refused field."""
        ...


# An escaped backslash, a surrogate pair, or half of one, which is the group.
HALF = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
ESCAPES = re.compile(rb"\\\\|" + PAIR + rb"|(" + HALF + rb")")
HALF_BYTES = 6  # of an escape such as \ud83d
SEARCHED_BYTES = 2**20  # of a body that is no JSON, so that the search is soon over


@dataclass(frozen=True, slots=True)
class JsonBounds:
    """The bounds of a body of JSON before it is decoded."""

    max_bytes: int
    max_parts: int
    max_depth: int
    max_characters: int = 0  # of a text; 0: texts may be files

    @classmethod
    def of(cls, settings: Settings, *, has_files: bool = False) -> "JsonBounds":
        return cls(
            settings.http_max_json_bytes,
            settings.max_message_parts,
            settings.http_max_json_depth,
            0 if has_files else max(LEAST, settings.max_text_characters),
        )


async def read_body(
    request: Incoming, settings: Settings, admission: Admission, *, is_json: bool = False
) -> Body:
    """The whole body, inflated. Raises `HttpError` and what admission raises."""
    limit, setting = settings.max_message_bytes, "--max-message-bytes"
    if is_json and settings.http_max_json_bytes < limit:
        limit, setting = settings.http_max_json_bytes, "--http-max-json-bytes"
    length = request.headers.get(b"content-length")
    if length is not None and int(length) > limit:
        raise _too_large(limit, setting)
    pieces: list[bytes] = []
    num_bytes = 0
    started_s = time.monotonic()
    has_more = True
    while has_more:
        allowed_s = settings.receive_timeout_s + num_bytes / settings.http_min_body_bytes_per_s
        message = await _receive(request, started_s + allowed_s - time.monotonic())
        if message["type"] == "http.disconnect":
            raise asyncio.CancelledError("the client has left, or was refused")
        piece = message["body"]
        has_more = message["more_body"]
        num_bytes += len(piece)
        if num_bytes > limit:
            raise _too_large(limit, setting)
        admission.take(len(piece))
        pieces.append(piece)
    body = pieces[0] if len(pieces) == 1 else await _joined(pieces, num_bytes)
    encoding = request.header("content-encoding")
    if not body or not encoding:
        return body
    content = await _inflated(request.path, body, encoding, limit)
    admission.take(len(content))
    return content


async def _joined(pieces: list[bytes], num_bytes: int) -> bytes:
    """The pieces as one; of many bytes on a thread, as copying them takes its time."""
    if num_bytes > LONG_JOIN_BYTES:
        return await asyncio.to_thread(b"".join, pieces)
    return b"".join(pieces)


async def _receive(request: Incoming, timeout_s: float) -> dict[str, Any]:
    if request.is_received:  # as most are: a timeout costs more than the rest of this
        return await request.receive()
    try:
        async with asyncio.timeout(timeout_s):
            return await request.receive()
    except TimeoutError as error:
        raise HttpError(
            408, "the body comes too slowly: see --receive-timeout-s", code="timeout"
        ) from error


async def _inflated(path: str, body: bytes, encoding: str, limit: int) -> Body:
    try:
        if is_long(len(body) * FEW):
            content = await asyncio.to_thread(inflated, body, encoding, limit)
        else:
            content = inflated(body, encoding, limit)
        assert not isinstance(content, memoryview), "it was none"
    except Unimplemented as error:
        raise HttpError(
            501 if path.startswith("/v2") else 415,  # Triton's, and RFC 9110's
            str(error),
            code="unsupported_encoding",
            headers=((b"accept-encoding", SUPPORTED.encode()),),
        ) from error
    return content


def decode_json(body: Body, kind: type[T]) -> T:
    """The record that a checked JSON object is. Raises `HttpError` with the field that is wrong."""
    if not body or body.isspace():
        raise HttpError(400, "the body is empty, expected a JSON object", code="invalid_json")
    try:
        record = msgspec.json.decode(body, type=kind, dec_hook=decode_number)
    except msgspec.ValidationError as error:
        fault = of_record(error, kind=kind)
        raise invalid(fault.text, fault.field) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        text = _not_utf8(body) or _half_surrogate(body) or f"the body is not JSON: {error}"
        raise HttpError(400, text, code="invalid_json") from error
    refused: FieldCheck | None = getattr(kind, "REFUSED", None)
    if refused is not None:
        refused.check(body)
    return record


def _not_utf8(body: Body) -> str:
    """Which byte of a body is no UTF-8; empty where all are."""
    try:
        bytes(body).decode()
    except UnicodeDecodeError as error:
        return f"the body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}"
    return ""


def _half_surrogate(body: Body) -> str:
    """Place of half of a surrogate pair at the body's beginning; empty where there is none."""
    for match in ESCAPES.finditer(body, 0, SEARCHED_BYTES):
        is_near_end = match.end() + HALF_BYTES > SEARCHED_BYTES  # the rest may have the other half
        if match[1] is not None and not is_near_end:
            return (
                f"the body has a half of a surrogate pair: {match[1].decode()} at byte "
                f"{match.start(1)} is no character without the other half"
            )
    return ""


def check_json(body: Body, bounds: JsonBounds) -> JsonParts:
    """The parts of a body of JSON within its bounds. Raises `HttpError`."""
    if len(body) > bounds.max_bytes:
        raise _too_large(bounds.max_bytes, "--http-max-json-bytes")
    try:
        return parts_within(body, bounds.max_parts, bounds.max_depth, bounds.max_characters)
    except InvalidArgument as error:
        code = "invalid_json" if "nested" in str(error) else "request_too_large"
        raise HttpError(400, str(error), code=code) from error


def _too_large(limit: int, setting: str = "--max-message-bytes") -> HttpError:
    text = f"the body has more than {limit} bytes: see {setting}"
    return HttpError(413, text, code="request_too_large")
