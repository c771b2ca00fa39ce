"""Measure what an HTTP front costs per request, before the model: four of them, in turns.

    python -m loadtests.measure.fronts --rounds 20

Every front answers the same: it decodes a JSON body into a record and writes an embedding of 384
numbers in base64, over connections that stay open. Each is a process of its own; one answers, the
others wait. The processor's time of the server per request is what counts, on a machine with other
work too; the rate is the client's as much as the server's.
"""

import asyncio
import base64
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import httptools
import msgspec
import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.turns import spread, take_turns

HOST = "127.0.0.1"
BODY = b'{"model":"minilm","input":"The quick brown fox jumps over the lazy dog.","user":null}'
REQUEST = (
    b"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"user-agent: fronts\r\naccept: */*\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
VALUES = base64.b64encode(bytes(4 * 384)).decode()
JSON = (b"content-type", b"application/json")


class Asked(msgspec.Struct):
    """The body of a request."""

    model: str
    input: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One front's turn."""

    requests_per_s: float
    cpu_us: float  # of the server's processor time, per request


def answer(body: bytes) -> bytes:
    """The work that all fronts have in common."""
    asked = msgspec.json.decode(body, type=Asked)
    return msgspec.json.encode({"model": asked.model, "data": [{"embedding": VALUES}]})


async def bare_asgi(_: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
    """An ASGI application without a framework."""
    message = await receive()
    body = message["body"]
    while message["more_body"]:
        message = await receive()
        body += message["body"]
    content = answer(body)
    headers = [JSON, (b"content-length", b"%d" % len(content))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def embed(request: Request) -> Response:
        return Response(answer(await request.body()), media_type="application/json")

    return Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"])])


class OwnProtocol(asyncio.Protocol):
    """The least that answers: no bounds, no streams."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "of a stream"
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._answer())

    async def _answer(self) -> None:
        content = answer(self._body)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(content) + content)


async def _serve_uvicorn(application: Any) -> None:
    import uvicorn

    config = uvicorn.Config(
        application, http="httptools", lifespan="off", log_config=None, access_log=False
    )
    # Named as TCP: of other sockets asyncio leaves Nagle's algorithm on, and uvicorn writes twice.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind((HOST, 0))
    _say(listening.getsockname()[1])
    await uvicorn.Server(config).serve([listening])


async def _serve_aiohttp() -> None:
    from aiohttp import web

    async def embed(request: web.Request) -> web.Response:
        return web.Response(body=answer(await request.read()), content_type="application/json")

    application = web.Application()
    application.router.add_post("/v1/embeddings", embed)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    _say(runner.addresses[0][1])
    await asyncio.Event().wait()


async def _serve_own() -> None:
    server = await asyncio.get_running_loop().create_server(OwnProtocol, HOST, 0)
    _say(server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()


FRONTS: dict[str, Callable[[], Awaitable[None]]] = {
    "own protocol on httptools": _serve_own,
    "ASGI on uvicorn": lambda: _serve_uvicorn(bare_asgi),
    "Starlette on uvicorn": lambda: _serve_uvicorn(_starlette()),
    "aiohttp": _serve_aiohttp,
}
BASE = "own protocol on httptools"


def _say(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


def main(
    connections: Annotated[int, typer.Option(min=1, help="Connections in use at once.")] = 8,
    requests: Annotated[int, typer.Option(min=1, help="Requests of one turn.")] = 2_000,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 15,
    serve: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Compare the processor's time per request of four HTTP fronts."""
    if serve:
        asyncio.run(_run(serve))
        return
    with ExitStack() as stack:
        ways = {}
        for name in FRONTS:
            process = subprocess.Popen(  # noqa: S603 - our own command
                (sys.executable, "-m", "loadtests.measure.fronts", "--serve", name),
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            assert process.stdout is not None, "it is a pipe"
            port = int(process.stdout.readline())
            ways[name] = partial(_take_turn, process.pid, port, requests, connections)
        _report(take_turns(ways, rounds))


async def _run(name: str) -> None:
    await FRONTS[name]()


def _take_turn(process_id: int, port: int, requests: int, connections: int) -> Turn:
    clock = (~process_id << 3) | 2  # as clock_getcpuclockid(3) numbers it
    cpu_s, started_s = time.clock_gettime(clock), time.perf_counter()
    asyncio.run(_ask(port, requests // connections, connections))
    took_s = time.perf_counter() - started_s
    return Turn(requests / took_s, (time.clock_gettime(clock) - cpu_s) / requests * 1e6)


async def _ask(port: int, requests: int, connections: int) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        for _ in range(requests):
            writer.write(REQUEST)
            head = await reader.readuntil(b"\r\n\r\n")
            _, _, rest = head.lower().partition(b"content-length: ")
            content = await reader.readexactly(int(rest.partition(b"\r\n")[0]))
            assert VALUES.encode() in content, content
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))


def _report(turns: Mapping[str, Sequence[Turn]]) -> None:
    table = Table("front", "CPU us/request", "over the leanest", "requests/s", "over")
    cpu_us = {name: [turn.cpu_us for turn in own] for name, own in turns.items()}
    rates = {name: [turn.requests_per_s for turn in own] for name, own in turns.items()}
    for name in turns:
        cpu, rate = (
            spread([own / base for own, base in zip(each[name], each[BASE], strict=True)])
            for each in (cpu_us, rates)
        )
        medians = spread(cpu_us[name]).median, spread(rates[name]).median
        table.add_row(name, f"{medians[0]:.0f}", str(cpu), f"{medians[1]:.0f}", str(rate))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
