"""Count the instructions of a request outside the session, by protocol: valgrind does.

    python -m loadtests.measure instructions --tree ../before --tree . --texts 1 --texts 8

Neighbours on the machine change times, and instructions hardly: this compares two versions of the
server where other work runs. The session sleeps instead of computing, so that nothing of it counts;
under valgrind everything else takes fifty times as long, and a run sleeps long enough for requests
to wait for it, as they do for a model. A tree is a checkout whose `attendant serve` is counted.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.load.lengths import mixed_texts
from loadtests.load.server import Server, start_server
from loadtests.measure.calls import PROTOCOLS, Protocol, turn_of
from loadtests.measure.records import (
    CASE,
    Column,
    Measure,
    Options,
    Turn,
    Way,
    by_columns,
    counted,
    option,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionOptions(Options):
    """Trees, and what they are asked."""

    model: str = option("minilm", "An embedder of one output.")
    repository: Path = option(Path("model_repository"), "Where it is.")
    tree: list[Path] = option([Path()], "A checkout to count; may be repeated.")
    texts: list[int] = option([1], "Texts of a request.", min=1)
    requests: int = option(320, "Requests that are counted.", min=32)
    concurrency: int = option(32, "Requests in flight.", min=1)
    rounds: int = option(1, "Rounds that count.", min=1)


def ways(options: InstructionOptions, stack: ExitStack) -> dict[str, Way]:
    """Every protocol to a server of every tree."""
    flags = ["--http-port", "0", "--max-queue-s", "0", "--measure-cost-s", "0"]
    flags += ["--model-control-mode", "explicit", "--load-models", options.model]
    found: dict[str, Way] = {}
    for tree in options.tree:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = tree.resolve()
        command = (
            *("/usr/bin/env", f"PYTHONPATH={path}:{path}/protos", "PYTHONHASHSEED=0"),
            *("valgrind", "--tool=callgrind", "--instr-atstart=no"),
            *(f"--callgrind-out-file={folder}/counts", sys.executable, "-c", SLEEPING, "serve"),
        )
        server = start_server(options.repository, flags, command=command)
        stack.callback(server.process.kill)
        for count in options.texts:
            lines = mixed_texts(options.requests * count)
            groups = [lines[start : start + count] for start in range(0, len(lines), count)]
            for name, protocol in PROTOCOLS["embed"].items():
                messages = [protocol.request(options.model, group) for group in groups]
                found[f"{tree}, {counted(count, 'text')}{CASE}{name}"] = partial(
                    _count, server, folder, protocol, messages, options.concurrency
                )
    return found


def _count(
    server: Server, folder: Path, protocol: Protocol, messages: Sequence[Any], concurrency: int
) -> Turn:
    """Thousands of instructions per request."""
    _control(server, "--instr=on")
    turn_of(server, protocol.send, messages, concurrency)
    _control(server, "--instr=off")
    return {"thousands": _dumped(server, folder) / len(messages) / 1e3}


INSTRUCTIONS = Measure(
    "instructions",
    "Instructions of a request outside the session, by protocol, which other work hardly changes",
    "What a request costs",
    InstructionOptions,
    ways,
    by_columns(Column("a request", "thousands", "thousands of instructions")),
)


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
