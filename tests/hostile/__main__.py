"""The command: every long field of every path, and the worst of waiting and of memory.

python -m tests.hostile --models model_repository [--door grpc]
"""

import random
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.e2e.server import ATTENDANT, ServerProcess
from tests.hostile.measure import Outcome, Target, write_repository
from tests.hostile.messages import PREFIX

IDLE_S = 5.0
NUM_SHOWN = 10
SIZES = "200000,2000000,16000000"


def main(
    models: Annotated[Path, typer.Option(help="Where minilm, spam and gpt are.")] = Path(
        "model_repository"
    ),
    sizes: Annotated[str, typer.Option(help="Bytes of bodies, with commas.")] = SIZES,
    seconds: Annotated[float, typer.Option(help="When to stop; in an order of chance.")] = 1e9,
    door: Annotated[str, typer.Option(help="http, or grpc: the typed API's fields.")] = "http",
    only: Annotated[str, typer.Option(help="A part of paths or fields.")] = "",
    command: Annotated[str, typer.Option(help="Of the server.")] = f"{ATTENDANT} serve",
    out: Annotated[Path | None, typer.Option(help="A file for a line of every body.")] = None,
) -> None:
    """Measure, and print the worst ten of waiting and of memory."""
    console, outcomes = Console(width=180), []
    end_s = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_repository(models, Path(folder))
        server = ServerProcess(Path(folder), "--http-port", "0", command=command.split())
        target = Target(stack.enter_context(server))
        cases = [
            (path, hole, int(size))
            for path, hole in target.description().bodies()
            for size in sizes.split(",")
            if only in f"{path} {hole.field}" and (door == "http" or path.startswith(PREFIX))
        ]
        random.Random(0).shuffle(cases)  # noqa: S311 - the same each time
        stack.enter_context(target.loop.watching())
        stack.enter_context(target.call.watching())
        time.sleep(IDLE_S)
        idle = target.call.num_calls
        for path, hole, size in cases:
            if time.monotonic() > end_s:
                break
            outcome = (target.send if door == "http" else target.send_message)(path, hole, size)
            if outcome is None:
                continue
            outcomes.append(outcome)
            if out is not None:
                with out.open("a") as file:
                    file.write(_line(outcomes[-1]) + "\n")
        quiet, busy = target.call.latencies_s(0, idle), target.call.latencies_s(idle)
    console.print(f"{len(outcomes)} of {len(cases)} bodies")
    console.print(f"p99 of other calls: {_p99(quiet):.4f} s alone, {_p99(busy):.4f} s beside them")
    for title, key in (("waiting", _waited), ("memory", _ratio)):
        console.print(_table(title, sorted(outcomes, key=key, reverse=True)[:NUM_SHOWN]))


def _waited(outcome: Outcome) -> float:
    return outcome.waited_s


def _ratio(outcome: Outcome) -> float:
    return outcome.ratio


def _p99(latencies_s: list[float]) -> float:
    return sorted(latencies_s)[len(latencies_s) * 99 // 100]


def _table(title: str, outcomes: list[Outcome]) -> Table:
    table = Table(title=f"worst of {title}")
    for name in ("path", "field", "form", "bytes", "status", "took s", "others waited s", "memory"):
        table.add_column(name, overflow="fold")
    for each in outcomes:
        memory = f"{each.ratio:.1f} x, {each.grown_bytes / 2**20:.0f} MiB"
        table.add_row(
            *(each.path, each.hole.field, each.hole.form, str(each.num_bytes), str(each.status)),
            *(f"{each.took_s:.2f}", f"{each.waited_s:.3f}", memory),
        )
    return table


def _line(each: Outcome) -> str:
    times = f"{each.waited_s:.3f}\t{each.ratio:.1f}\t{each.took_s:.3f}"
    body = f"{each.num_bytes}\t{each.status}\t{each.path}\t{each.hole.field}\t{each.hole.form}"
    return f"{times}\t{body}\t{each.answer[:160]!r}"


if __name__ == "__main__":
    typer.run(main)
