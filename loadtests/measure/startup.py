"""The time until a server is ready, and the memory of each model.

    python -m loadtests.measure.startup --repository model_repository --rounds 5

Rounds of a bare interpreter, the server's imports, a server without models and one with all of
them, from the start of the process; files are in the system's cache from a first round that does
not count. Then each model alone, its resident memory over that of a server without models, when
it is ready and before the first request.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.server import serving
from loadtests.load.turns import spread, take_turns
from service.contract.files import find_models, find_versions

MIB = 2**20
NO_MODELS = ("--model-control-mode", "explicit")


def main(
    repository: Annotated[Path, typer.Option(help="Where the models are.")] = Path(
        "model_repository"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 5,
    flag: Annotated[
        list[str] | None, typer.Option(help="Flag for the servers, e.g. --flag=--precision=fp32.")
    ] = None,
) -> None:
    """Time starts, and weigh models."""
    flags = flag or []
    ways: dict[str, Callable[[], float]] = {
        "python": partial(_python_s, "pass"),
        "imports": partial(_python_s, "import commands.main, service.app, onnxruntime"),
        "ready without models": lambda: _start(repository, [*NO_MODELS, *flags])[0],
        "ready with all models": lambda: _start(repository, flags)[0],
    }
    table = Table("from the start of the process", "s, median (range)")
    for name, seconds in take_turns(ways, rounds).items():
        table.add_row(name, str(spread(seconds)))
    Console().print(table)
    base_mib = _start(repository, [*NO_MODELS, *flags])[1]
    table = Table("model", "files, MiB", "resident, MiB")
    table.add_row("none", "", f"{base_mib:.0f}")
    for name in find_models(repository):
        mib = _start(repository, [*NO_MODELS, "--load-models", name, *flags])[1] - base_mib
        table.add_row(name, _graph_sizes(repository / name), f"{mib:.0f}")
    Console().print(table)


def _python_s(code: str) -> float:
    started_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code
    return time.perf_counter() - started_s


def _start(repository: Path, flags: Sequence[str]) -> tuple[float, float]:
    """Seconds until a server is ready, and its resident MiB then."""
    started_s = time.perf_counter()
    with serving(repository, flags) as server:
        return time.perf_counter() - started_s, server.resident_mib()


def _graph_sizes(model: Path) -> str:
    """The latest version's graphs, each with its MiB."""
    version = model / str(max(find_versions(model)))
    sizes = ((path.name, path.stat().st_size / MIB) for path in sorted(version.glob("*.onnx")))
    return ", ".join(f"{name} {size:.0f}" for name, size in sizes)


if __name__ == "__main__":
    typer.run(main)
