"""Reads the body of a request within its bounds, inflates it, and decodes its JSON.

The bytes of a body count as bytes in flight as they come, and until the request is answered.
"""

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from service.errors import Unimplemented
from service.http.compression import SUPPORTED, inflated, is_long
from service.http.json_faults import of_record
from service.http.numbers import decode_number
from service.http.peer_fields import Refusals
from service.http.status import HttpError, invalid

if TYPE_CHECKING:
    from service.http.request import Request

T = TypeVar("T")
Body: TypeAlias = bytes | bytearray
FEW = 16  # times as many bytes, at least, that one inflates to before it is left to a thread
# One that does not end goes to the end, or each quote in it would be tried as a beginning.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_OPEN = np.frombuffer(b"[{", np.uint8)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


async def read_body(request: "Request") -> Body:
    """The whole body, inflated. Raises `HttpError` and what admission raises."""
    settings = request.front.settings
    limit = settings.max_message_bytes
    length = request.headers.get(b"content-length")
    if length is not None and int(length) > limit:
        raise _too_large(limit)
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
            raise _too_large(limit)
        request.front.admission.take(len(piece))
        pieces.append(piece)
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    encoding = request.header("content-encoding")
    if not body or not encoding:
        return body
    return await _inflated(request, body, encoding, limit)


async def _receive(request: "Request", timeout_s: float) -> dict[str, Any]:
    if request.is_received:  # as most are: a timeout costs more than the rest of this
        return await request.receive()
    try:
        async with asyncio.timeout(timeout_s):
            return await request.receive()
    except TimeoutError as error:
        raise HttpError(
            408, "the body comes too slowly: see --receive-timeout-s", code="timeout"
        ) from error


async def _inflated(request: "Request", body: bytes, encoding: str, limit: int) -> Body:
    try:
        if is_long(len(body) * FEW):
            content = await asyncio.to_thread(inflated, body, encoding, limit)
        else:
            content = inflated(body, encoding, limit)
        assert not isinstance(content, memoryview), "it was none"
    except Unimplemented as error:
        raise HttpError(
            501 if request.path.startswith("/v2") else 415,  # Triton's, and RFC 9110's
            str(error),
            code="unsupported_encoding",
            headers=((b"accept-encoding", SUPPORTED.encode()),),
        ) from error
    request.front.admission.take(len(content))
    return content


def decode_json(body: Body, kind: type[T], max_depth: int) -> T:
    """The record that a JSON object is. Raises `HttpError` with the field that is wrong."""
    check_depth(body, max_depth)
    if not body or body.isspace():
        raise HttpError(400, "the body is empty, expected a JSON object", code="invalid_json")
    try:
        record = msgspec.json.decode(body, type=kind, dec_hook=decode_number)
    except msgspec.ValidationError as error:
        fault = of_record(error, kind=kind)
        raise invalid(fault.text, fault.field) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        text = _not_utf8(body) or f"the body is not JSON: {error}"
        raise HttpError(400, text, code="invalid_json") from error
    refused = getattr(kind, "REFUSED", None)
    if isinstance(refused, Refusals):
        refused.check(body)
    return record


def _not_utf8(body: Body) -> str:
    """Which byte of a body is no UTF-8; empty where all are."""
    try:
        bytes(body).decode()
    except UnicodeDecodeError as error:
        return f"the body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}"
    return ""


def check_depth(body: Body, max_depth: int) -> None:
    """Raise `HttpError` for JSON that is nested more deeply; other faults are left to decoding."""
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return
    depth = _depth(body)
    if depth > max_depth:
        raise HttpError(
            400,
            f"the body is nested {depth} deep, expected at most {max_depth}",
            code="invalid_json",
        )


def check_parts(body: Body, max_parts: int) -> None:
    """Raise `HttpError` for more values than a message may have parts."""
    if body.count(b",") < max_parts:
        return
    count = without_strings(body).count(b",")
    if count >= max_parts:
        raise HttpError(400, f"the body has more than {max_parts} values", code="request_too_large")


def without_strings(body: Body) -> bytes:
    """JSON without the names and texts in it, for its signs to be counted."""
    return _STRING.sub(b"", body)


def _depth(body: Body) -> int:
    """How deeply arrays and objects are nested, brackets in strings left out."""
    brackets = without_strings(body).translate(None, _NO_BRACKETS)
    opens = np.isin(np.frombuffer(brackets, np.uint8), _OPEN)
    return int(np.cumsum(np.where(opens, 1, -1)).max(initial=0))


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body has more than {limit} bytes", code="request_too_large")
