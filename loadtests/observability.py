"""What do metrics, traces and logs cost? Servers side by side, asked in turn, A B C C B A ...

    python -m loadtests.observability --rounds 10
    python -m loadtests.observability --model model_repository/minilm --requests 600

The default model adds a row to itself, so that a request is nothing but the server's own work: what
is measured is the most that these may cost. Each server is a process; one computes, the others
wait. Ratios are taken within a round, over the server that has metrics only, as by default.

Throughput is shared with the client and with whatever else the machine does. The processor's time
that a server takes per request is its own, but for what neighbours do to caches and clocks, which
only adds to it: of many short turns the cheapest tenth compare best.
"""

import asyncio
import json
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import grpc
import numpy as np
import onnx
import typer
from onnx import TensorProto, helper
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.server import SERVE, Server, start_server
from service.datatypes import to_raw

BASE = "metrics (default)"
WIDTH = 16
SENTENCE = "The quick brown fox jumps."
OPSET = 17
# `attendant` whose models count nothing.
UNCOUNTED = """
import sys
from service.cli import main
from service.metrics import ModelMetrics
for name in ("request_succeeded", "request_failed", "batch_ran"):
    setattr(ModelMetrics, name, lambda *_: None)
sys.argv[0] = "attendant"
main()
"""
QUIETLY = ("sh", "-c", 'exec "$0" "$@" 2>/dev/null')  # the same process, whose log nobody reads


@dataclass(frozen=True, slots=True)
class Round:
    """One server's turn."""

    requests_per_s: float
    cpu_us: float  # of the server's processes' time, per request


def main(
    model: Annotated[
        Path | None, typer.Option(help="Folder of a text model; by default a tiny tensor model.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 32,
    requests: Annotated[int, typer.Option(min=1, help="Requests of one turn.")] = 2_000,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 10,
    only: Annotated[
        list[str] | None, typer.Option(help="Servers whose names begin so, and the default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure servers without metrics, with, and with traces and request logs besides."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        repository = Path(name)
        request = text_model(model, repository) if model else tiny_model(repository)
        endpoint = stack.enter_context(_collecting())
        servers = {}
        chosen = (*(only or [""]), BASE)
        for way, (flags, command) in _ways(endpoint).items():
            if not way.startswith(chosen):
                continue
            servers[way] = start_server(repository, flags, command=[*QUIETLY, *command])
            stack.callback(servers[way].stop)
        turns: dict[str, list[Round]] = {way: [] for way in servers}
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("rounds", total=(rounds + 1) * len(servers))
            for count in range(rounds + 1):
                order = list(servers.items())
                for way, server in order if count % 2 else reversed(order):
                    turn = asyncio.run(take_turn(server, request, requests, concurrency))
                    if count:
                        turns[way].append(turn)
                    progress.advance(task)
    _report(turns, as_json)


def _ways(endpoint: str) -> dict[str, tuple[list[str], Sequence[str]]]:
    """Flags and command of each server."""
    traced = ["--otlp-endpoint", endpoint, "--trace-sample-ratio"]
    logged = ["--log-level", "info", "--log-requests", "--log-format"]
    return {
        "nothing": ([], [sys.executable, "-c", UNCOUNTED, "serve"]),
        BASE: ([], SERVE),
        "... again": ([], SERVE),  # how much two servers that are alike differ
        "traces, 0 %": ([*traced, "0"], SERVE),
        "traces, 1 %": ([*traced, "0.01"], SERVE),
        "traces, all": ([*traced, "1"], SERVE),
        "request log, console": ([*logged, "console"], SERVE),
        "request log, JSON": ([*logged, "json"], SERVE),
    }


def tiny_model(repository: Path) -> service_pb2.ModelInferRequest:
    """Write a model that adds a row of 16 to itself; a request to it."""
    rows = (None, WIDTH)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "doubling",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, rows)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, rows)],
    )
    folder = repository / "model" / "1"
    folder.mkdir(parents=True)
    opsets = [helper.make_opsetid("", OPSET)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "model.onnx")
    (folder.parent / "config.pbtxt").write_text("max_batch_size: 64\n")
    return infer_request()


def infer_request() -> service_pb2.ModelInferRequest:
    """Asks the tiny model."""
    return _request("x", "FP32", np.ones((1, WIDTH), np.float32), [1, WIDTH])


def text_model(model: Path, repository: Path, num_words: int = 5) -> service_pb2.ModelInferRequest:
    """Put a text model there as `model`; a request of so many words to it."""
    shutil.copytree(model, repository / "model")
    config = repository / "model" / "config.pbtxt"
    config.write_text(config.read_text().replace(f'"{model.name}"', '"model"', 1))
    text = " ".join(islice(cycle(SENTENCE.split()), num_words))
    return _request("text", "BYTES", np.array([text.encode()], object), [1, 1])


def _request(
    name: str, datatype: str, values: np.ndarray, shape: list[int]
) -> service_pb2.ModelInferRequest:
    request = service_pb2.ModelInferRequest(model_name="model", id="17")
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.append(to_raw(values))
    return request


async def take_turn(
    server: Server, request: service_pb2.ModelInferRequest, num_requests: int, concurrency: int
) -> Round:
    """Ask so often, over a connection of its own."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        await stub.ModelInfer(request, timeout=60)
        waiting = iter(range(num_requests))

        async def client() -> None:
            for _ in waiting:
                await stub.ModelInfer(request, timeout=60)

        cpu_s, started_s = _cpu_s(server.process_id), time.perf_counter()
        await asyncio.gather(*(client() for _ in range(concurrency)))
        took_s = time.perf_counter() - started_s
        cpu_s = _cpu_s(server.process_id) - cpu_s
    return Round(num_requests / took_s, cpu_s / num_requests * 1e6)


def _cpu_s(process_id: int) -> float:
    """What a process has computed so far: its clock, as clock_getcpuclockid(3) numbers it."""
    return time.clock_gettime((~process_id << 3) | 2)


@contextmanager
def _collecting() -> Iterator[str]:
    """A process that takes spans and keeps none; where it listens."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    yield f"http://127.0.0.1:{ours.recv()}"
    process.terminate()


def _collect(parent: Connection) -> None:
    method: Any = grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"Export": method}),)
    )
    parent.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def _report(turns: dict[str, list[Round]], as_json: bool) -> None:
    rows = {way: compared(own, turns[BASE]) for way, own in turns.items()}
    if as_json:
        print(json.dumps(rows, indent=2))  # noqa: T201
        return
    table = Table(
        "server", "requests/s", "over", "CPU us/request", "over", "cheapest tenth", "over"
    )
    for way, row in rows.items():
        table.add_row(
            way,
            f"{row['requests_per_s']:.0f}",
            "{:.3f} ({:.3f} to {:.3f})".format(*row["throughput"]),
            f"{row['cpu_us']:.0f}",
            "{:.3f} ({:.3f} to {:.3f})".format(*row["cpu"]),
            f"{row['cheapest_us']:.0f}",
            f"{row['cheapest_us'] / rows[BASE]['cheapest_us']:.3f}",
        )
    Console().print(table)


def compared(own: Sequence[Round], base: Sequence[Round]) -> dict[str, Any]:
    """Medians, and ratios as median, quartiles."""
    throughput = [a.requests_per_s / b.requests_per_s for a, b in zip(own, base, strict=True)]
    cpu = [a.cpu_us / b.cpu_us for a, b in zip(own, base, strict=True)]
    return {
        "requests_per_s": statistics.median(turn.requests_per_s for turn in own),
        "cpu_us": statistics.median(turn.cpu_us for turn in own),
        "cheapest_us": float(np.quantile([turn.cpu_us for turn in own], 0.1)),
        "throughput": _spread(throughput),
        "cpu": _spread(cpu),
    }


def _spread(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return float(middle), float(low), float(high)


if __name__ == "__main__":
    typer.run(main)
