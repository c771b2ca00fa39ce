"""What does gRPC itself cost, in the ways that Python has it? Servers that answer without looking.

    python -m loadtests.fronts

Each server is a process that gives every call the same answer, bytes in, bytes out, as large as
that of the tiny model of `observability.py`; they are asked in turn, A B C C B A, 32 requests in
flight, and compared with `grpc.aio`, on which Attendant is built. `core` is a loop over gRPC's
completion queue without asyncio or a thread pool, through modules of grpcio that are not public:
what is possible, not what is to be had. `uvloop` is there where it is installed.
"""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import grpc
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tritonclient.grpc import service_pb2

from loadtests.observability import Round, compared, infer_request, take_turn
from loadtests.server import Server

BASE = "grpc.aio"
NUM_THREADS = 8


def main(
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 32,
    requests: Annotated[int, typer.Option(min=1, help="Requests of one turn.")] = 500,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure servers that do nothing."""
    names = [name for name in FRONTS if name != "uvloop" or importlib.util.find_spec("uvloop")]
    servers = {name: _start(name) for name in names}
    turns: dict[str, list[Round]] = {name: [] for name in names}
    try:
        with Progress(console=Console(stderr=True)) as progress:
            task = progress.add_task("rounds", total=(rounds + 1) * len(names))
            for count in range(rounds + 1):
                for name in names if count % 2 else reversed(names):
                    turn = asyncio.run(
                        take_turn(servers[name], infer_request(), requests, concurrency)
                    )
                    if count:
                        turns[name].append(turn)
                    progress.advance(task)
    finally:
        for server in servers.values():
            server.stop()
    rows = {name: compared(own, turns[BASE]) for name, own in turns.items()}
    if as_json:
        print(json.dumps(rows, indent=2))  # noqa: T201
        return
    table = Table("server", "requests/s", "CPU us/request", "over", "cheapest tenth")
    for name, row in rows.items():
        over = "{:.2f} ({:.2f} to {:.2f})".format(*row["cpu"])
        numbers = (f"{row[key]:.0f}" for key in ("requests_per_s", "cpu_us", "cheapest_us"))
        rate, cpu_us, cheapest_us = numbers
        table.add_row(name, rate, cpu_us, over, cheapest_us)
    Console().print(table)


def _start(name: str) -> Server:
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "loadtests.fronts", "--serve", name],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return Server(process, int(process.stdout.readline()))


def _answer() -> bytes:
    response = service_pb2.ModelInferResponse(model_name="model", model_version="1", id="17")
    response.outputs.add(name="y", datatype="FP32", shape=[1, 16])
    response.raw_output_contents.append(bytes(64))
    return bytes(response.SerializeToString())


class _Same(grpc.GenericRpcHandler):
    """One method, whatever is called."""

    def __init__(self, method: Callable[[bytes, object], object]) -> None:
        self._method: Any = grpc.unary_unary_rpc_method_handler(method)

    def service(self, _details: object) -> Any:  # noqa: ANN401 - has no public type
        return self._method


async def _serve_aio() -> None:
    raw = _answer()

    async def answer(_request: bytes, _context: object) -> bytes:
        return raw

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Same(answer),))
    _tell(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await server.wait_for_termination()


def _serve_uvloop() -> None:
    uvloop: Any = importlib.import_module("uvloop")
    uvloop.run(_serve_aio())


def _serve_threads() -> None:
    raw = _answer()
    server = grpc.server(ThreadPoolExecutor(NUM_THREADS))
    server.add_generic_rpc_handlers((_Same(lambda _request, _context: raw),))
    _tell(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def _serve_core() -> None:
    """Three batches of operations per call, as in the other servers, on one thread."""
    core: Any = importlib.import_module("grpc._cython.cygrpc")
    raw, queue = _answer(), core.CompletionQueue()
    server = core.Server([], False)
    server.register_completion_queue(queue)
    _tell(server.add_http2_port(b"127.0.0.1:0"))
    server.start()
    server.request_call(queue, queue, ("call", None))
    while True:
        event = queue.poll()
        kind, call = event.tag
        if kind == "call":
            server.request_call(queue, queue, ("call", None))
            call = event.call
            call.start_server_batch((core.ReceiveMessageOperation(0),), ("message", call))
            call.start_server_batch((core.ReceiveCloseOnServerOperation(0),), ("closed", call))
        elif kind == "message":
            operations = (
                core.SendInitialMetadataOperation(None, 0),
                core.SendMessageOperation(raw, 0),
                core.SendStatusFromServerOperation(None, 0, b"", 0),
            )
            call.start_server_batch(operations, ("answered", call))


def _tell(port: int) -> None:
    print(port, flush=True)  # noqa: T201


FRONTS: dict[str, Callable[[], None]] = {
    BASE: lambda: asyncio.run(_serve_aio()),
    "uvloop": _serve_uvloop,
    "threads": _serve_threads,
    "core": _serve_core,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        FRONTS[sys.argv[2]]()
    else:
        typer.run(main)
