"""Count the instructions of a request outside the session, at every front: valgrind does.

    python -m loadtests.measure.instructions --tree ../before --tree . --texts 1 --texts 8

Neighbours on the machine change times, and instructions hardly: this compares two versions of the
server where other work runs. The session sleeps instead of computing, so that nothing of it counts;
under valgrind everything else takes fifty times as long, and a run sleeps long enough for requests
to wait for it, as they do for a model. A tree is a checkout whose `attendant serve` is counted.
"""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.lengths import mixed
from loadtests.load.server import Server, start_server
from loadtests.measure.batching import SEED
from loadtests.measure.stages import DOORS

RUN_S = 0.4
CONTROL_TIMEOUT_S = 300.0
# `attendant` whose embedder answers after a while.
SLEEPING = f"""
import sys, time
import numpy as np
from commands.main import main
from service.runtime.session import OnnxSession
def run(session, inputs, outputs, stopping=None):
    time.sleep({RUN_S})
    size = session.signature.outputs[0].dims[-1]
    return [np.full((len(inputs["input_ids"]), size), 0.03125, np.float32)]
OnnxSession.run = run
sys.argv[0] = "attendant"
main()
"""


def main(
    model: Annotated[str, typer.Option(help="An embedder of one output.")] = "minilm",
    repository: Annotated[Path, typer.Option(help="Where it is.")] = Path("model_repository"),
    tree: Annotated[
        list[Path] | None, typer.Option(help="A checkout to count; may be repeated.")
    ] = None,
    texts: Annotated[
        list[int] | None, typer.Option(min=1, help="Texts of a request; may be repeated.")
    ] = None,
    requests: Annotated[int, typer.Option(min=32, help="Requests that are counted.")] = 320,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight.")] = 32,
) -> None:
    """Count what requests cost a server, in thousands of instructions each."""
    table = Table("tree", "texts", *DOORS, title="thousands of instructions per request")
    for each in tree or [Path()]:
        for count in texts or [1]:
            counted = _count(each.resolve(), repository, model, count, requests, concurrency)
            table.add_row(str(each), str(count), *(f"{thousands:.0f}" for thousands in counted))
    Console().print(table)


def _count(
    tree: Path, repository: Path, model: str, num_texts: int, num_requests: int, concurrency: int
) -> list[float]:
    """Thousands of instructions per request, by front."""
    generator = random.Random(SEED)
    lines = [each.text(generator) for each in mixed(num_requests * num_texts, generator)]
    groups = [lines[start : start + num_texts] for start in range(0, len(lines), num_texts)]
    flags = ["--http-port", "0", "--max-queue-s", "0", "--measure-cost-s", "0"]
    flags += ["--model-control-mode", "explicit", "--load-models", model]
    counted = []
    with tempfile.TemporaryDirectory() as folder:
        command = (
            *("/usr/bin/env", f"PYTHONPATH={tree}:{tree}/protos", "PYTHONHASHSEED=0"),
            *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
            *(f"--callgrind-out-file={folder}/counts", sys.executable, "-c", SLEEPING, "serve"),
        )
        server = start_server(repository, flags, command=command)
        try:
            for door, request_of in DOORS.values():
                messages = [request_of(model, group) for group in groups]
                asyncio.run(door(server, messages, concurrency))  # warms up
                _control(server, "--instr=on")
                asyncio.run(door(server, messages, concurrency))
                _control(server, "--instr=off")
                counted.append(_dumped(server, Path(folder)) / num_requests / 1e3)
        finally:
            server.process.kill()
    return counted


def _control(server: Server, order: str) -> None:
    command = ("callgrind_control", order, str(server.process_id))
    subprocess.run(command, check=True, capture_output=True, timeout=CONTROL_TIMEOUT_S)  # noqa: S603 - valgrind's own


def _dumped(server: Server, folder: Path) -> int:
    """Instructions since the dump before this."""
    before = set(folder.iterdir())
    _control(server, "--dump")
    until_s = time.monotonic() + CONTROL_TIMEOUT_S
    while time.monotonic() < until_s:
        for path in set(folder.iterdir()) - before:
            lines = path.read_text().splitlines()
            if lines and lines[-1].startswith("totals: "):
                return int(lines[-1].split()[1])
        time.sleep(0.1)
    raise TimeoutError(f"valgrind wrote no counts in {CONTROL_TIMEOUT_S:g} s")


if __name__ == "__main__":
    typer.run(main)
