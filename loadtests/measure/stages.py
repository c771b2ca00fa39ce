"""Measure the processor time of a request by stage, at every front, and of its client.

    python -m loadtests.measure.stages                                   # MiniLM, a text a request
    python -m loadtests.measure.stages --texts 1 --texts 8 --json stages.json

Two servers take turns: one with a clock in each stage (`staged_server.py`), whose figures the table
has without what the clocks cost, and one without. The bare session computes the same texts, at the
best of several batch sizes. Processor time is that of threads, which neighbours on the machine
disturb less than rates: the bare session's over that of server and client is the part of the bare
rate that both cores can reach, and over the server's alone what they could with clients elsewhere.
"""

import asyncio
import json
import random
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import grpc
import numpy as np
import typer
from attendant.v1 import text_pb2, text_pb2_grpc
from rich.console import Console
from rich.table import Table
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.load.closed_loop import closed_loop
from loadtests.load.lengths import mixed
from loadtests.load.server import SERVE, Server, start_server
from loadtests.load.turns import Spread, spread, take_turns
from loadtests.measure.batching import SEED, bare_way, rows_of
from loadtests.measure.staged_server import STAGES
from service.contract.files import ModelSource
from service.contract.tensors import to_raw
from service.repository.loading import Openers, load_model
from service.settings import Settings

STAGED = (sys.executable, "-m", "loadtests.measure.staged_server")
HEAD = "POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n"
Door: TypeAlias = Callable[[Server, Sequence[Any], int], Coroutine[Any, Any, float]]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: microseconds of processor time, each per request."""

    seconds: float
    client_us: float = 0.0
    server_us: float = 0.0
    stages_us: Mapping[str, float] = field(default_factory=dict)


def main(
    model: Annotated[str, typer.Option(help="An embedder of the repository.")] = "minilm",
    repository: Annotated[Path, typer.Option(help="Where it is.")] = Path("model_repository"),
    texts: Annotated[
        list[int] | None, typer.Option(min=1, help="Texts of a request; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=32, help="Texts of one turn.")] = 640,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 5,
    precision: Annotated[str, typer.Option(help="As the server's, on both sides.")] = "auto",
    results: Annotated[Path | None, typer.Option("--json", help="File for all figures.")] = None,
) -> None:
    """Measure what a request costs a server, by stage and front."""
    generator = random.Random(SEED)
    lines = [lengths.text(generator) for lengths in mixed(limit, generator)]
    settings = Settings(model_repository=repository, precision=precision, measure_cost_s=0.0)
    loaded = load_model(ModelSource.of(repository, model), settings, Openers()).versions[-1]
    items, _ = rows_of(loaded, model, lines)
    bare = bare_way(loaded, items)
    flags = ["--precision", precision, "--http-port", "0", "--max-queue-s", "0"]
    flags += ["--model-control-mode", "explicit", "--load-models", model]
    figures = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        path = f"{folder}/stages"
        staged = start_server(repository, flags, command=(*STAGED, path, "serve"))
        stack.callback(staged.stop)
        plain = start_server(repository, flags, command=SERVE)
        stack.callback(plain.stop)
        for count in texts or [1]:
            ways: dict[str, Callable[[], Turn]] = {"bare": partial(_bare, bare, limit / count)}
            for name, (door, request_of) in DOORS.items():
                groups = [lines[start : start + count] for start in range(0, limit, count)]
                requests = [request_of(model, group) for group in groups]
                ways[name] = partial(_turn, plain, door, requests, concurrency)
                ways[f"{name} by stage"] = partial(_turn, staged, door, requests, concurrency, path)
            turns = take_turns(ways, rounds)
            figures[count] = _figures(turns)
            _report(turns, count, concurrency)
    if results is not None:
        results.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _bare(run: Callable[[], float], num_requests: float) -> Turn:
    cpu_ns = time.process_time_ns()
    took_s = run()
    return Turn(took_s, server_us=(time.process_time_ns() - cpu_ns) / num_requests / 1e3)


def _turn(
    server: Server, door: Door, requests: Sequence[Any], concurrency: int, socket_path: str = ""
) -> Turn:
    clock = (~server.process_id << 3) | 2  # as clock_getcpuclockid(3) numbers it
    before = _snapshot(socket_path)
    server_ns, client_ns = time.clock_gettime_ns(clock), time.process_time_ns()
    took_s = asyncio.run(door(server, requests, concurrency))
    client_ns = time.process_time_ns() - client_ns
    server_ns = time.clock_gettime_ns(clock) - server_ns
    after = _snapshot(socket_path)
    per_request_us = 1 / len(requests) / 1e3
    stages_us = {
        stage: (spent_ns - before.get(stage, 0.0)) * per_request_us
        for stage, spent_ns in after.items()
    }
    return Turn(took_s, client_ns * per_request_us, server_ns * per_request_us, stages_us)


def _snapshot(path: str) -> dict[str, float]:
    """Nanoseconds by stage so far; nothing of a server without clocks."""
    if not path:
        return {}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        spent_ns: dict[str, float] = json.load(connection.makefile())
    return spent_ns


def _tensor_request(model: str, texts: Sequence[str]) -> service_pb2.ModelInferRequest:
    return service_pb2.ModelInferRequest(
        model_name=model,
        inputs=[{"name": "text", "datatype": "BYTES", "shape": [len(texts), 1]}],
        raw_input_contents=[to_raw(np.array([text.encode() for text in texts], object))],
        parameters={"truncate": service_pb2.InferParameter(bool_param=True)},
    )


def _typed_request(model: str, texts: Sequence[str]) -> text_pb2.EmbedRequest:
    return text_pb2.EmbedRequest(model=model, texts=texts, truncate=True)


def _http_request(model: str, texts: Sequence[str]) -> bytes:
    fields = {"model": model, "input": texts, "encoding_format": "base64"}
    body = json.dumps({**fields, "truncate_prompt_tokens": -1}).encode()
    return HEAD.format(len(body)).encode() + body


async def _by_tensors(server: Server, requests: Sequence[Any], concurrency: int) -> float:
    async with grpc.aio.insecure_channel(server.address) as channel:
        infer = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer
        return await closed_loop(requests, concurrency, partial(infer, timeout=60))


async def _by_embed(server: Server, requests: Sequence[Any], concurrency: int) -> float:
    async with grpc.aio.insecure_channel(server.address) as channel:
        embed = text_pb2_grpc.TextServiceStub(channel).Embed
        return await closed_loop(requests, concurrency, partial(embed, timeout=60))


async def _by_http(server: Server, requests: Sequence[Any], concurrency: int) -> float:
    host, _, port = server.http_address.rpartition(":")
    free = [await asyncio.open_connection(host, int(port)) for _ in range(concurrency)]

    async def ask(request: bytes) -> None:
        reader, writer = connection = free.pop()
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert head.startswith(b"http/1.1 200"), head
        _, _, rest = head.partition(b"\r\ncontent-length: ")
        await reader.readexactly(int(rest.partition(b"\r\n")[0]))
        free.append(connection)

    took_s = await closed_loop(requests, concurrency, ask)
    for _, writer in free:
        writer.close()
    return took_s


DOORS: Mapping[str, tuple[Door, Callable[[str, Sequence[str]], Any]]] = {
    "gRPC, tensors": (_by_tensors, _tensor_request),
    "gRPC, Embed": (_by_embed, _typed_request),
    "HTTP, /v1/embeddings": (_by_http, _http_request),
}


def _figures(turns: Mapping[str, Sequence[Turn]]) -> dict[str, Any]:
    """Everything that was measured, by way and round."""
    return {
        name: [
            {
                "seconds": turn.seconds,
                "client_us": turn.client_us,
                "server_us": turn.server_us,
                "stages_us": turn.stages_us,
            }
            for turn in own
        ]
        for name, own in turns.items()
    }


def _over(bare: Sequence[Turn], own: Sequence[Turn], cost: Callable[[Turn], float]) -> Spread:
    """The bare session's processor time over a server's, round by round."""
    return spread([one.server_us / cost(other) for one, other in zip(bare, own, strict=True)])


def _report(turns: Mapping[str, Sequence[Turn]], count: int, concurrency: int) -> None:
    bare = turns["bare"]
    noun = "text" if count == 1 else "texts"
    table = Table(f"us of processor time per request of {count} {noun}, {concurrency} in flight")
    for name in DOORS:
        table.add_column(name, justify="right")

    def add(title: str, cell: Callable[[str], object]) -> None:
        table.add_row(title, *(str(cell(name)) for name in DOORS))

    def median(own: Sequence[Turn], figure: Callable[[Turn], float]) -> str:
        return f"{spread([figure(turn) for turn in own]).median:.0f}"

    def at(stage: str) -> Callable[[str], str]:
        return lambda name: median(
            turns[f"{name} by stage"], lambda turn: turn.stages_us.get(stage, 0.0)
        )

    for stage in STAGES:
        add(stage, at(stage))
    add("all stages", lambda name: median(turns[f"{name} by stage"], _staged_us))
    add("server without clocks", lambda name: median(turns[name], lambda turn: turn.server_us))
    add("client", lambda name: median(turns[name], lambda turn: turn.client_us))
    add("bare session", lambda _: median(bare, lambda turn: turn.server_us))
    add("bare over server", lambda name: _over(bare, turns[name], lambda turn: turn.server_us))
    add("bare over server and client", lambda name: _over(bare, turns[name], _both_us))
    add("rate over the bare session's", lambda name: _rates(bare, turns[name]))
    Console().print(table)


def _staged_us(turn: Turn) -> float:
    return sum(turn.stages_us.get(stage, 0.0) for stage in STAGES)


def _both_us(turn: Turn) -> float:
    return turn.server_us + turn.client_us


def _rates(bare: Sequence[Turn], own: Sequence[Turn]) -> Spread:
    return spread([one.seconds / other.seconds for one, other in zip(bare, own, strict=True)])


if __name__ == "__main__":
    typer.run(main)
