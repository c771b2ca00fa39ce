"""Measure what a request costs a server by gRPC and by HTTP, in turns on one server.

    python -m loadtests.measure.doors --rounds 40
    python -m loadtests.measure.doors --model-repository model_repository --embed minilm
    python -m loadtests.measure.doors --model-repository model_repository --generate gpt

The first model adds a row to itself, so that a request is nothing but the server's own work; an
embedder says what share of a whole request that is, and a decoder what a stream costs, of 32 tokens
in as many events. Every way has its own connections, as many as requests are in flight; gRPC's
clients share one. The processor's time of the server per request is what counts, on a machine with
other work too; latencies are the client's, whose own work is part of them.
"""

import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import grpc
import numpy as np
import typer
from attendant.v1 import generation_pb2, generation_pb2_grpc, text_pb2, text_pb2_grpc
from rich.console import Console
from rich.table import Table
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.load.graphs import write_sums
from loadtests.load.server import Server, start_server
from loadtests.load.turns import spread, take_turns

SUMS = "sums"
NUM_TOKENS = 32
TEXT = "The quick brown fox jumps over the lazy dog."
HEAD = "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n{}\r\n"


@dataclass(slots=True)
class Seen:
    """What the clients of one turn saw."""

    latencies_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)  # between two messages of a stream


Ask: TypeAlias = Callable[[int, int, Seen], Awaitable[None]]  # requests, and as many at once


@dataclass(frozen=True, slots=True)
class Turn:
    """One way's turn."""

    requests_per_s: float
    cpu_us: float  # of the server's processor time, per request
    latency_ms: tuple[float, float]  # p50 and p99
    gap_ms: tuple[float, float] | None  # of streams: between two tokens


def main(
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, help="Requests in flight; may be repeated.")
    ] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests of one turn.")] = 640,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 40,
    model_repository: Annotated[Path | None, typer.Option(help="Of the embedder.")] = None,
    embed: Annotated[str, typer.Option(help="An embedder, in place of sums.")] = "",
    generate: Annotated[str, typer.Option(help="A decoder, in place of sums.")] = "",
) -> None:
    """Compare a server's processor time per request by gRPC and by HTTP."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        repository = model_repository or Path(folder)
        if not (embed or generate):
            write_sums(repository, SUMS)
        port = _free_port()
        server = start_server(repository, ["--http-port", str(port)])
        stack.callback(server.stop)
        if generate:
            asks = _generation(server, port, generate)
        else:
            asks = _embedding(server, port, embed) if embed else _sums(server, port)
        levels = concurrency or [32]
        ways = {
            f"{name}\0{level}": partial(_turn, server, ask, requests, level)
            for level in levels
            for name, ask in asks.items()
        }
        turns = take_turns(ways, rounds)
        for level in levels:
            _report({name: turns[f"{name}\0{level}"] for name in asks}, level)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _sums(server: Server, port: int) -> dict[str, Ask]:
    request = service_pb2.ModelInferRequest(model_name=SUMS, id="17")
    request.inputs.add(name="x", datatype="INT64", shape=[1, 2])
    raw = np.array([3, 4], "<i8").tobytes()
    request.raw_input_contents.append(raw)
    tensor = {"name": "x", "datatype": "INT64", "shape": [1, 2]}
    plain = {"id": "17", "inputs": [{**tensor, "data": [3, 4]}]}
    sized = {**tensor, "parameters": {"binary_data_size": len(raw)}}
    binary = {"id": "17", "parameters": {"binary_data_output": True}, "inputs": [sized]}
    head = json.dumps(binary).encode()
    path = f"/v2/models/{SUMS}/infer"
    length = f"inference-header-content-length: {len(head)}\r\n"

    def infer(channel: grpc.aio.Channel) -> Callable[[], Awaitable[object]]:
        return partial(service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer, request)

    return {
        "gRPC, raw tensors": partial(_by_grpc, server, infer),
        "HTTP, binary tensors": partial(_by_http, port, _post(path, head + raw, length)),
        "HTTP, tensors in JSON": partial(_by_http, port, _post(path, json.dumps(plain).encode())),
    }


def _embedding(server: Server, port: int, model: str) -> dict[str, Ask]:
    request = text_pb2.EmbedRequest(model=model, texts=[TEXT])
    body = json.dumps({"model": model, "texts": [TEXT]}).encode()
    openai = {"model": model, "input": TEXT, "encoding_format": "base64"}

    def ask(channel: grpc.aio.Channel) -> Callable[[], Awaitable[object]]:
        return partial(text_pb2_grpc.TextServiceStub(channel).Embed, request)

    return {
        "gRPC, Embed": partial(_by_grpc, server, ask),
        "HTTP, /api/Embed": partial(_by_http, port, _post("/api/Embed", body)),
        "HTTP, /v1/embeddings": partial(
            _by_http, port, _post("/v1/embeddings", json.dumps(openai).encode())
        ),
    }


def _generation(server: Server, port: int, model: str) -> dict[str, Ask]:
    params = {"max_tokens": NUM_TOKENS, "temperature": 0.0, "ignore_eos": True}
    request = generation_pb2.GenerateRequest(model=model, text=TEXT, sampling_params=params)
    body = json.dumps({"model": model, "text": TEXT, "sampling_params": params}).encode()

    def ask(channel: grpc.aio.Channel) -> Callable[[], Awaitable[object]]:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)

        async def read() -> list[float]:
            return [time.perf_counter() async for _ in stub.Generate(request)]

        return read

    openai = {"model": model, "prompt": TEXT, "stream": True, **params}
    typed = _post("/api/Generate", body, "accept: text/event-stream\r\n")
    completions = _post("/v1/completions", json.dumps(openai).encode())
    return {
        "gRPC, Generate": partial(_by_grpc, server, ask),
        "HTTP, /api/Generate": partial(_by_http, port, typed),
        "HTTP, /v1/completions": partial(_by_http, port, completions),
    }


def _post(path: str, body: bytes, headers: str = "") -> bytes:
    return HEAD.format(path, len(body), headers).encode() + body


def _turn(server: Server, ask: Ask, requests: int, concurrency: int) -> Turn:
    seen = Seen()
    clock = (~server.process_id << 3) | 2  # as clock_getcpuclockid(3) numbers it
    cpu_s, started_s = time.clock_gettime(clock), time.perf_counter()
    asyncio.run(_all(ask, requests, concurrency, seen))
    took_s, cpu_s = time.perf_counter() - started_s, time.clock_gettime(clock) - cpu_s
    num_asked = len(seen.latencies_s)
    gap_ms = _milliseconds(seen.gaps_s) if seen.gaps_s else None
    latency_ms = _milliseconds(seen.latencies_s)
    return Turn(num_asked / took_s, cpu_s / num_asked * 1e6, latency_ms, gap_ms)


def _milliseconds(times_s: Sequence[float]) -> tuple[float, float]:
    half, most = np.quantile(times_s, (0.5, 0.99)) * 1000
    return float(half), float(most)


async def _all(ask: Ask, requests: int, concurrency: int, seen: Seen) -> None:
    await ask(requests, concurrency, seen)


async def _client(num_requests: int, seen: Seen, ask: Callable[[], Awaitable[object]]) -> None:
    for _ in range(num_requests):
        started_s = time.perf_counter()
        messages_s = await ask()
        seen.latencies_s.append(time.perf_counter() - started_s)
        if isinstance(messages_s, list):  # when each message of a stream came
            seen.gaps_s += np.diff(messages_s[:NUM_TOKENS]).tolist()


async def _by_grpc(
    server: Server,
    method: Callable[[grpc.aio.Channel], Callable[[], Awaitable[object]]],
    requests: int,
    concurrency: int,
    seen: Seen,
) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        call = method(channel)
        clients = (_client(requests // concurrency, seen, call) for _ in range(concurrency))
        await asyncio.gather(*clients)


async def _by_http(port: int, request: bytes, requests: int, concurrency: int, seen: Seen) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def ask() -> list[float] | None:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200"), head
            _, _, rest = head.partition(b"\r\ncontent-length: ")
            if not rest:
                return await _events(reader)
            await reader.readexactly(int(rest.partition(b"\r\n")[0]))
            return None

        await _client(requests // concurrency, seen, ask)
        writer.close()

    await asyncio.gather(*(client() for _ in range(concurrency)))


async def _events(reader: asyncio.StreamReader) -> list[float]:
    """When each event of a chunked answer came, its end included."""
    came_s = []
    while length := int(await reader.readline(), 16):
        chunk = await reader.readexactly(length + 2)
        came_s += [time.perf_counter()] * chunk.count(b"data: ")
    await reader.readexactly(2)
    return came_s


def _report(turns: Mapping[str, Sequence[Turn]], concurrency: int) -> None:
    base = next(iter(turns.values()))
    has_gaps = base[0].gap_ms is not None
    columns = ["CPU us/request", "over", "requests/s", "over", "p50; p99 ms", "p99 over"]
    columns += ["tokens/s", "between tokens, p50; p99 ms"] if has_gaps else []
    table = Table("way", *columns, title=f"{concurrency} in flight")
    for name, own in turns.items():
        paired = list(zip(own, base, strict=True))
        cells = [
            f"{np.median([turn.cpu_us for turn in own]):.0f}",
            str(spread([turn.cpu_us / other.cpu_us for turn, other in paired])),
            f"{np.median([turn.requests_per_s for turn in own]):.0f}",
            str(spread([turn.requests_per_s / other.requests_per_s for turn, other in paired])),
            _medians([turn.latency_ms for turn in own]),
            str(spread([turn.latency_ms[1] / other.latency_ms[1] for turn, other in paired])),
        ]
        if has_gaps:
            rate = np.median([turn.requests_per_s for turn in own]) * NUM_TOKENS
            gaps_ms = [turn.gap_ms for turn in own if turn.gap_ms]
            cells += [f"{rate:.0f}", _medians(gaps_ms)]
        table.add_row(name, *cells)
    Console(width=160).print(table)


def _medians(quantiles_ms: Sequence[tuple[float, float]]) -> str:
    half, most = np.median(quantiles_ms, axis=0)
    return f"{half:.2f}; {most:.2f}"


if __name__ == "__main__":
    typer.run(main)
