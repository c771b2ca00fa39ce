"""How long small calls wait beside large ones, which clients send without pause.

    python -m loadtests.measure neighbours --clients 8 --megabytes 40

A bare server of `grpc.aio`, which returns its input, is measured first: no server in Python
can do better. The clients of the large requests are a process of their own.
"""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from loadtests.load.graphs import write_identity
from loadtests.load.server import serving
from loadtests.measure.records import (
    Column,
    Measure,
    Options,
    Turn,
    Way,
    by_columns,
    option,
)

IDENTITY = "identity"
SERVICE = "/inference.GRPCInferenceService/"
TIMEOUT_S = 60.0
SETTLE_S = 2.0  # of large requests alone
PAUSE_S = 0.01  # between small calls
OPTIONS = [(f"grpc.max_{way}_message_length", -1) for way in ("receive", "send")]
BARE = (sys.executable, "-c", "from loadtests.measure.neighbours import serve_bare; serve_bare()")


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourOptions(Options):
    """The large requests."""

    clients: int = option(8, "With large requests.", min=1)
    megabytes: int = option(40, "Of a large request.", min=1)
    seconds: float = option(5.0, "Of measuring, in each turn.", min=1)
    rounds: int = option(2, "Rounds that count.", min=1)
    warm_up: int = option(0, "Rounds before them.", min=0)


def ways(options: NeighbourOptions, stack: ExitStack) -> dict[str, Way]:
    """A bare server and ours, each alone while it is asked."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    write_identity(folder, IDENTITY)
    load = options.clients, options.megabytes, options.seconds

    def by_bare() -> Turn:
        with bare() as address:
            return _quantiles(beside(address, *load))

    def by_ours() -> Turn:
        with serving(folder) as server:
            return _quantiles(beside(server.address, *load))

    return {"bare grpc.aio": by_bare, "attendant": by_ours}


def _quantiles(waits_ms: Mapping[str, Sequence[float]]) -> Turn:
    return {
        f"{call}, p{mark}": float(np.percentile(each, mark))
        for call, each in waits_ms.items()
        for mark in (50, 99)
    }


NEIGHBOURS = Measure(
    "neighbours",
    "How long small calls wait beside large ones, which clients send without pause",
    "Small calls beside large ones",
    NeighbourOptions,
    ways,
    by_columns(
        *(
            Column(name, name, "ms")
            for call in ("ModelInfer", "ServerLive")
            for name in (f"{call}, p50", f"{call}, p99")
        )
    ),
)


def beside(address: str, clients: int, megabytes: int, seconds: float) -> dict[str, list[float]]:
    """The milliseconds of each small call while clients sent large requests."""
    context = multiprocessing.get_context("spawn")
    load = context.Process(target=send_large, args=(address, clients, megabytes), daemon=True)
    load.start()
    try:
        time.sleep(SETTLE_S)
        with grpc.insecure_channel(address) as channel:
            infer: Any = channel.unary_unary(f"{SERVICE}ModelInfer")
            live: Any = channel.unary_unary(f"{SERVICE}ServerLive")
            small = message_of(4)
            found: dict[str, list[float]] = {"ModelInfer": [], "ServerLive": []}
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                found["ModelInfer"].append(_wait_ms(infer, small))
                found["ServerLive"].append(_wait_ms(live, b""))
        assert load.is_alive(), "a client of large requests failed"
        return found
    finally:
        load.kill()
        load.join()


def _wait_ms(call: Any, message: bytes) -> float:
    started_s = time.monotonic()
    call(message, timeout=TIMEOUT_S)
    waited_s = time.monotonic() - started_s
    time.sleep(PAUSE_S)
    return waited_s * 1e3


def send_large(address: str, clients: int, megabytes: int) -> None:
    """Until the process is ended; it ends by itself where a request fails."""
    os.nice(10)  # where processors are few, the server comes first
    message = message_of(megabytes * 250_000)

    def send() -> None:
        options = [*OPTIONS, ("grpc.use_local_subchannel_pool", 1)]  # a connection each
        with grpc.insecure_channel(address, options) as channel:
            infer: Any = channel.unary_unary(f"{SERVICE}ModelInfer")
            while len(infer(message, timeout=TIMEOUT_S)) > megabytes * 10**6:
                pass

    threads = [threading.Thread(target=send, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    while all(thread.is_alive() for thread in threads):
        time.sleep(PAUSE_S)


def message_of(count: int) -> bytes:
    request = service_pb2.ModelInferRequest(model_name=IDENTITY)
    request.inputs.add(name="x", datatype="FP32", shape=[1, count])
    request.raw_input_contents.append(bytes(4 * count))
    return bytes(request.SerializeToString())


@contextmanager
def bare() -> Iterator[str]:
    """The address of a server that does nothing."""
    with subprocess.Popen(BARE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def serve_bare() -> None:
    asyncio.run(_serve_bare())


async def _serve_bare() -> None:
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((_Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)  # noqa: T201 - for the process that started this one
    await server.wait_for_termination()


class _Echo(grpc.GenericRpcHandler):
    """Gives back every message as it came."""

    def service(self, _: grpc.HandlerCallDetails) -> Any:
        async def echo(message: bytes, _: object) -> bytes:
            return message

        return grpc.unary_unary_rpc_method_handler(echo)
