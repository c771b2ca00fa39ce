"""Measure what metrics cost: servers without and with them, in turns.

    python -m loadtests.measure.observability --rounds 90

The model adds a row to itself, so that a request is nothing but the server's own work: this is the
most that metrics may cost. Each server is a process; one computes, the others wait. Ratios are
taken within a round, over the server as it is by default, with metrics and without traces. Two
servers that are alike say how much of a difference is noise.

The processor's time that a server takes per request is its own, but for what neighbours do to
caches and clocks, which only adds to it: of many short turns the cheapest tenth compare best.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import grpc
import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from tritonclient.grpc import service_pb2, service_pb2_grpc

from loadtests.load.closed_loop import closed_loop
from loadtests.load.graphs import write_sums
from loadtests.load.server import SERVE, Server, start_server
from loadtests.load.turns import spread, take_turns

MODEL = "sums"
BASE = "metrics (default)"
# `attendant` whose models count nothing.
UNCOUNTED = """
import sys
from commands.main import main
from service.observe.metrics import ModelMetrics
for name in ("request_ended", "batch_ran"):
    assert hasattr(ModelMetrics, name), name
    setattr(ModelMetrics, name, lambda *_: None)
sys.argv[0] = "attendant"
main()
"""
COMMANDS: dict[str, Sequence[str]] = {
    "no metrics": (sys.executable, "-c", UNCOUNTED, "serve"),
    BASE: SERVE,
    "... again": SERVE,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """One server's turn."""

    requests_per_s: float
    cpu_us: float  # of the server's processor time, per request


def main(
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 32,
    requests: Annotated[int, typer.Option(min=1, help="Requests of one turn.")] = 320,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 60,
) -> None:
    """Compare a server without metrics with two that have them."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_sums(Path(folder), MODEL)
        ways = {}
        for name, command in COMMANDS.items():
            server = start_server(Path(folder), command=command)
            stack.callback(server.stop)
            ways[name] = partial(_take_turn, server, requests, concurrency)
        _report(take_turns(ways, rounds))


def _take_turn(server: Server, num_requests: int, concurrency: int) -> Turn:
    return asyncio.run(_ask(server, num_requests, concurrency))


async def _ask(server: Server, num_requests: int, concurrency: int) -> Turn:
    """Requests in a closed loop, over a connection of their own."""
    request = service_pb2.ModelInferRequest(model_name=MODEL, id="17")
    request.inputs.add(name="x", datatype="INT64", shape=[1, 2])
    request.raw_input_contents.append(np.array([3, 4], "<i8").tobytes())
    async with grpc.aio.insecure_channel(server.address) as channel:
        infer = partial(service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer, timeout=60)
        await infer(request)
        cpu_s = _cpu_s(server.process_id)
        took_s = await closed_loop([request] * num_requests, concurrency, infer)
        cpu_s = _cpu_s(server.process_id) - cpu_s
    return Turn(num_requests / took_s, cpu_s / num_requests * 1e6)


def _cpu_s(process_id: int) -> float:
    """Processor time of a process so far: its clock, as clock_getcpuclockid(3) numbers it."""
    return time.clock_gettime((~process_id << 3) | 2)


def _report(turns: Mapping[str, Sequence[Turn]]) -> None:
    table = Table(
        "server", "requests/s", "over", "CPU us/request", "over", "cheapest tenth", "over"
    )
    cpu_us = {name: [turn.cpu_us for turn in own] for name, own in turns.items()}
    rates = {name: [turn.requests_per_s for turn in own] for name, own in turns.items()}
    cheapest_us = {name: float(np.quantile(own, 0.1)) for name, own in cpu_us.items()}
    for name in turns:
        rate, cpu = (
            spread([own / base for own, base in zip(each[name], each[BASE], strict=True)])
            for each in (rates, cpu_us)
        )
        table.add_row(
            name,
            f"{np.median(rates[name]):.0f}",
            str(rate),
            f"{np.median(cpu_us[name]):.0f}",
            str(cpu),
            f"{cheapest_us[name]:.0f}",
            f"{cheapest_us[name] / cheapest_us[BASE]:.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
