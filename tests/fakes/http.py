"""Raw HTTP: bytes to a port, and what comes back, so that no client smooths over anything."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.fakes.serving import Served
from tests.fakes.sessions import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def port_of(served: Served) -> int:
    port = served.app.http_port
    assert port is not None, "the server has an HTTP port"
    return port


async def exchange(port: int, *pieces: bytes, until_s: float = PATIENCE_S) -> bytes:
    """All that a connection gives until it ends; pieces are sent one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        async with asyncio.timeout(until_s):
            return await _until_end(reader)
    finally:
        writer.close()


async def _until_end(reader: asyncio.StreamReader) -> bytes:
    received = bytearray()
    try:
        while piece := await reader.read(2**16):
            received += piece
    except ConnectionResetError:
        pass
    return bytes(received)


def request(
    method: str, path: str, body: bytes | None = None, headers: Iterable[tuple[str, str]] = ()
) -> bytes:
    """The bytes of a request; the connection ends with its answer."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def ask(
    served: Served,
    method: str,
    path: str,
    body: bytes | dict[str, Any] | None = None,
    headers: Iterable[tuple[str, str]] = (),
) -> Answer:
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    raw = await exchange(port_of(served), request(method, path, content, headers))
    (answer,) = answers(raw)
    return answer


def answers(raw: bytes) -> list[Answer]:
    """The answers that some bytes are, chunked ones put together."""
    found = []
    while raw:
        head, _, raw = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        if headers.get("transfer-encoding") == "chunked":
            body, raw = _chunks(raw)
        else:
            size = int(headers.get("content-length", 0))
            body, raw = raw[:size], raw[size:]
        found.append(Answer(int(first.split()[1]), headers, body))
    return found


def _chunks(raw: bytes) -> tuple[bytes, bytes]:
    body = b""
    while raw:
        size, _, raw = raw.partition(b"\r\n")
        count = int(size, 16)
        body, raw = body + raw[:count], raw[count + 2 :]
        if not count:
            break
    return body, raw
