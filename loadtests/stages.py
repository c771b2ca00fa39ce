"""Where does a server's processor time go? Microseconds per request and stage, under load.

    python -m loadtests.stages --model model_repository/minilm

By default a model that adds a row to itself is asked, else each `--model`: a text model, asked for
`--words` words. 32 requests are in flight. Each model has two servers, asked in turn: one
as it is, one whose stages are stamped (`staged.py`). The stages add up to the processor time of the
second; what stamping took, besides being taken off, is the second less the first.

The stages are medians over the rounds, so that their sum is the total's median but for rounding
of another kind. The client shares the processors with the server, and is not counted.
"""

import asyncio
import json
import signal
import statistics
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from tritonclient.grpc import service_pb2

from loadtests.observability import Round, take_turn, text_model, tiny_model
from loadtests.server import SERVE, Server, start_server
from loadtests.staged import MEASURING, STAGES

STAGED = (sys.executable, "-m", "loadtests.staged")
TINY = "sums"
TOTAL, PLAIN, RATE = "all of it", "the same, not stamped", "requests/s, not stamped"


def main(
    model: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of a text model; by default a tiny tensor model."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 32,
    requests: Annotated[int, typer.Option(min=1, help="Requests of one turn.")] = 1_000,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 10,
    words: Annotated[int, typer.Option(min=1, help="Words of a text.")] = 12,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure each model's stages."""
    columns = {}
    models: list[Path | None] = [*model] if model else [None]
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("rounds", total=(rounds + 1) * len(models))
        for path in models:
            with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
                repository = Path(name)
                request = text_model(path, repository, words) if path else tiny_model(repository)
                plain = start_server(repository, command=SERVE)
                stack.callback(plain.stop)
                staged = start_server(repository, command=STAGED)
                stack.callback(staged.stop)
                found: defaultdict[str, list[float]] = defaultdict(list)
                for count in range(rounds + 1):
                    turn = asyncio.run(take_turn(plain, request, requests, concurrency))
                    stages = _staged_turn(staged, request, requests, concurrency)
                    progress.advance(task)
                    if count:
                        stages |= {PLAIN: turn.cpu_us, RATE: turn.requests_per_s}
                        for stage, value in stages.items():
                            found[stage].append(value)
                columns[path.name if path else TINY] = {
                    stage: statistics.median(values) for stage, values in found.items()
                }
    _report(columns, as_json)


def _staged_turn(
    server: Server, request: service_pb2.ModelInferRequest, num_requests: int, concurrency: int
) -> dict[str, float]:
    """Microseconds per request by stage; the first and last requests' are a little off."""
    before = _ask(server)
    turn: Round = asyncio.run(take_turn(server, request, num_requests, concurrency))
    after = _ask(server)
    spent = {stage: after[stage] - before.get(stage, 0.0) for stage in after}
    stages = {stage: ns / 1e3 / (num_requests + 1) for stage, ns in spent.items()}
    return stages | {TOTAL: turn.cpu_us}


def _ask(server: Server) -> dict[str, float]:
    server.send(signal.SIGUSR1)
    assert server.process.stdout is not None
    told: dict[str, float] = json.loads(server.process.stdout.readline())
    return told


def _report(columns: dict[str, dict[str, float]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(columns, indent=2))  # noqa: T201
        return
    table = Table("stage", *(f"{name}, us" for name in columns))
    known = {stage for column in columns.values() for stage in column}
    last = [MEASURING, TOTAL, PLAIN, RATE]
    for stage in [*STAGES, *sorted(known - {*STAGES, *last}), *last]:
        if stage in known:
            table.add_row(stage, *(f"{column.get(stage, 0.0):.0f}" for column in columns.values()))
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
