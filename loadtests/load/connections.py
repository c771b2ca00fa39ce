"""`Connections`: HTTP/1.1 to one server of this machine, as light as can be.

A client shares the processors with the server that it measures: a request is bytes, of an answer
no more is read than its length, and connections stay open, as many as requests are in flight.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field

HOST = "127.0.0.1"
HEAD = (
    f"POST {{}} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    "Content-Length: {}\r\n{}\r\n"
)


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; of a stream of events also when each came, by `time.perf_counter`."""

    status: int
    body: bytes
    events_s: list[float] = field(default_factory=list)


def post(path: str, body: object, headers: str = "") -> bytes:
    """A request with this body, as JSON where it is not bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HEAD.format(path, len(content), headers).encode() + content


class Connections:
    """Connections that requests take in turn; live on one event loop."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self, count: int) -> None:
        """Connect beforehand."""
        self._idle += [await asyncio.open_connection(HOST, self._port) for _ in range(count)]

    async def ask(self, request: bytes) -> Response:
        if not self._idle:
            await self.open(1)
        reader, writer = self._idle.pop()
        writer.write(request)
        response = await _read(reader)
        self._idle.append((reader, writer))
        return response

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()


async def _read(reader: asyncio.StreamReader) -> Response:
    """A response with a length, or in chunks."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    status = int(head.split(b" ", 2)[1])
    if b"\r\ntransfer-encoding: chunked" not in head:
        length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
        return Response(status, await reader.readexactly(int(length or 0)))
    body, events_s = b"", list[float]()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        chunk = await reader.readexactly(size + 2)
        events_s += [time.perf_counter()] * chunk.count(b"data: ")
        body += chunk[:-2]
    await reader.readexactly(2)
    return Response(status, body, events_s)
