"""The time until a server is ready, and the memory of each model.

    python -m loadtests.measure startup --repository model_repository --rounds 5

A bare interpreter, the server's imports, a server without models and one with all of them, from the
start of the process; files are in the system's cache from a first round that does not count. Then
each model alone: its resident memory over that of a server without models, when it is ready and
before the first request.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loadtests.load.server import serving
from loadtests.load.turns import spread
from loadtests.measure.records import (
    Column,
    Figure,
    Measure,
    Options,
    Rounds,
    Turn,
    Way,
    by_columns,
    option,
)
from service.contract.files import find_models, find_versions

MIB = 2**20
NO_MODELS = ("--model-control-mode", "explicit")
BARE, READY = "ready without models", "ready with all models"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupOptions(Options):
    """The models, and how they are served."""

    repository: Path = option(Path("model_repository"), "Where the models are.")
    flag: list[str] = option([], "Flag for the servers, e.g. --flag=--precision=fp32.")


def ways(options: StartupOptions, _: ExitStack) -> dict[str, Way]:
    """Starts of programs, and of a server with each model alone."""
    repository, flags = options.repository, options.flag
    imports = "import commands.main, service.app, onnxruntime"
    found: dict[str, Way] = {
        "python": partial(_python, "pass"),
        "imports": partial(_python, imports),
        BARE: partial(_start, repository, [*NO_MODELS, *flags]),
        READY: partial(_start, repository, flags),
    }
    for name in find_models(repository):
        alone = [*NO_MODELS, "--load-models", name, *flags]
        files = {"files_mib": _graphs_mib(repository / name)}
        found[name] = partial(lambda alone, files: _start(repository, alone) | files, alone, files)
    return found


def _python(code: str) -> dict[str, float]:
    started_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own code
    return {"seconds": time.perf_counter() - started_s}


def _start(repository: Path, flags: Sequence[str]) -> dict[str, float]:
    """Seconds until a server is ready, and its resident MiB then."""
    started_s = time.perf_counter()
    with serving(repository, flags) as server:
        return {"seconds": time.perf_counter() - started_s, "mib": server.resident_mib()}


def _graphs_mib(model: Path) -> float:
    """The size of the latest version's graphs."""
    version = model / str(max(find_versions(model)))
    return sum(path.stat().st_size for path in version.glob("*.onnx")) / MIB


BY_START = by_columns(
    Column("from the start of the process", "seconds", "s", goals={READY: 2.0}, at_most=True),
    Column("resident", "mib", "MiB"),
    Column("graphs, on disk", "files_mib", "MiB"),
)


def figures(rounds: Rounds) -> list[Figure]:
    """Figures of each start, and what a model adds to a server without."""

    def added(turns: Sequence[Turn]) -> list[float]:
        return [own["mib"] - base["mib"] for own, base in zip(turns, rounds[BARE], strict=True)]

    return BY_START(rounds) + [
        Figure.of(name, "resident over none", spread(added(turns)), "MiB")
        for name, turns in rounds.items()
        if "files_mib" in turns[0]
    ]


STARTUP = Measure(
    "startup",
    "Seconds until a server is ready, and the memory that each model takes",
    "Start and memory",
    StartupOptions,
    ways,
    figures,
)
