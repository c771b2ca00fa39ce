"""Measure what a request costs a server by gRPC and by HTTP, in turns on one server.

    python -m loadtests.measure.doors --rounds 40
    python -m loadtests.measure.doors --model-repository model_repository --embed minilm
    python -m loadtests.measure.doors --model-repository model_repository --generate gpt

The first model adds a row to itself, so that a request is nothing but the server's own work; an
embedder says what share of a whole request that is, and a decoder what a stream costs, of 32 tokens
in as many events. Every way has its own connections, as many as
requests are in flight; gRPC's clients share one. The processor's time of the server per request is
what counts, on a machine with other work too.
"""

import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
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
Ask: TypeAlias = Callable[[int, int], Awaitable[None]]  # requests, and as many at once


@dataclass(frozen=True, slots=True)
class Turn:
    """One way's turn."""

    requests_per_s: float
    cpu_us: float  # of the server's processor time, per request


def main(
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 32,
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
        ways = {
            name: partial(_turn, server, ask, requests, concurrency) for name, ask in asks.items()
        }
        _report(take_turns(ways, rounds), next(iter(asks)))


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

    def ask(channel: grpc.aio.Channel) -> Callable[[], Awaitable[object]]:
        return partial(text_pb2_grpc.TextServiceStub(channel).Embed, request)

    return {
        "gRPC, Embed": partial(_by_grpc, server, ask),
        "HTTP, /api/Embed": partial(_by_http, port, _post("/api/Embed", body)),
    }


def _generation(server: Server, port: int, model: str) -> dict[str, Ask]:
    params = {"max_tokens": NUM_TOKENS, "temperature": 0.0, "ignore_eos": True}
    request = generation_pb2.GenerateRequest(model=model, text=TEXT, sampling_params=params)
    body = json.dumps({"model": model, "text": TEXT, "sampling_params": params}).encode()

    def ask(channel: grpc.aio.Channel) -> Callable[[], Awaitable[object]]:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)

        async def read() -> None:
            async for _ in stub.Generate(request):
                pass

        return read

    accept = "accept: text/event-stream\r\n"
    sent = _post("/api/Generate", body, accept)
    return {
        "gRPC, Generate": partial(_by_grpc, server, ask),
        "HTTP, events of /api/Generate": partial(_by_http, port, sent),
    }


def _post(path: str, body: bytes, headers: str = "") -> bytes:
    return HEAD.format(path, len(body), headers).encode() + body


def _turn(server: Server, ask: Ask, requests: int, concurrency: int) -> Turn:
    clock = (~server.process_id << 3) | 2  # as clock_getcpuclockid(3) numbers it
    cpu_s, started_s = time.clock_gettime(clock), time.perf_counter()
    asyncio.run(_all(ask, requests, concurrency))
    took_s = time.perf_counter() - started_s
    return Turn(requests / took_s, (time.clock_gettime(clock) - cpu_s) / requests * 1e6)


async def _all(ask: Ask, requests: int, concurrency: int) -> None:
    await ask(requests, concurrency)


async def _by_grpc(
    server: Server,
    method: Callable[[grpc.aio.Channel], Callable[[], Awaitable[object]]],
    requests: int,
    concurrency: int,
) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        call = method(channel)

        async def client() -> None:
            for _ in range(requests // concurrency):
                await call()

        await asyncio.gather(*(client() for _ in range(concurrency)))


async def _by_http(port: int, request: bytes, requests: int, concurrency: int) -> None:
    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(requests // concurrency):
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 200"), head
            _, _, rest = head.partition(b"\r\ncontent-length: ")
            if rest:
                await reader.readexactly(int(rest.partition(b"\r\n")[0]))
            else:
                await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()

    await asyncio.gather(*(client() for _ in range(concurrency)))


def _report(turns: Mapping[str, Sequence[Turn]], base: str) -> None:
    table = Table("way", "CPU us/request", "over", "requests/s", "over", "cheapest tenth, us")
    cpu_us = {name: [turn.cpu_us for turn in own] for name, own in turns.items()}
    rates = {name: [turn.requests_per_s for turn in own] for name, own in turns.items()}
    for name in turns:
        cpu, rate = (
            spread([own / other for own, other in zip(each[name], each[base], strict=True)])
            for each in (cpu_us, rates)
        )
        table.add_row(
            name,
            f"{np.median(cpu_us[name]):.0f}",
            str(cpu),
            f"{np.median(rates[name]):.0f}",
            str(rate),
            f"{np.quantile(cpu_us[name], 0.1):.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
