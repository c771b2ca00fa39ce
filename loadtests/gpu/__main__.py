"""Check Attendant on a GPU: `python -m loadtests.gpu`, or `make gpu-check`.

    python -m loadtests.gpu                          every section, within eight minutes
    python -m loadtests.gpu --budget 150             what fits into 150 s, by its value
    python -m loadtests.gpu --sections 2,6 --again   two sections once more
    python -m loadtests.gpu --device cpu --tiny      its own logic, on a machine without a GPU

Runs from a checkout with the packages that docs/how-to/cuda.md names; Attendant itself need not be
installed.
The budget is a hard limit of the whole command. The report is written after every section, so that
it is there whenever the command ends. docs/how-to/cuda.md says what was verified on CUDA.
"""

import time

STARTED_S = time.monotonic()  # the budget includes imports

# ruff: noqa: E402
import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from commands.help import Command
from loadtests.gpu.context import Peers, Run
from loadtests.gpu.sections import SECTIONS, chosen, shapes_of
from loadtests.gpu.supervisor import read_records, run_all

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
ROOT = Path(__file__).parents[2]
BUDGET_S = 480.0
Folder = Annotated[Path, typer.Option(help="Folder of the report and of what it is made of.")]
Sections = Annotated[str, typer.Option(help="Numbers of sections, as in 2,6; by default all.")]
Again = Annotated[bool, typer.Option("--again", help="Run sections that are done once more.")]
Budget = Annotated[
    float | None, typer.Option(min=5.0, help=f"Seconds in all; by default {BUDGET_S:.0f}.")
]
Minutes = Annotated[float | None, typer.Option(min=0.1, help="The budget in minutes.")]
Device = Annotated[Literal["cuda", "cpu"], typer.Option(help="Where models run.")]
Tiny = Annotated[bool, typer.Option("--tiny", help="Take models and loads of the smallest size.")]
Shapes = Annotated[str, typer.Option(help="Networks that are measured, as in bert-base,gpt2.")]
PeersOption = Annotated[
    Peers, typer.Option(help="What speed is compared with; compiled where time is left.")
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Replace results of another device or size.")
]


@app.command(cls=Command)
def main(
    out: Folder = Path("build/gpu-check"),
    sections: Sections = "",
    again: Again = False,
    budget: Budget = None,
    minutes: Minutes = None,
    device: Device = "cuda",
    tiny: Tiny = False,
    shapes: Shapes = "",
    peers: PeersOption = "compiled",
    replace: Replace = False,
) -> None:
    """Check Attendant on this machine's GPU, and write a report."""
    _put_on_path()
    if importlib.util.find_spec("torch") is None:
        raise ModuleNotFoundError("no PyTorch", name="torch")
    if budget is not None and minutes is not None:
        raise typer.BadParameter("give --budget or --minutes, not both", param_hint="--minutes")
    try:
        numbers = chosen(sections, SECTIONS)
        run = Run(out.absolute(), device, tiny, shapes_of(shapes, is_tiny=tiny), peers)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    others = read_records(run, SECTIONS, of_others=True)
    if others and not replace:
        raise typer.BadParameter(
            f"{out} has results of another device or size, sections {', '.join(map(str, others))}: "
            "choose another folder, or pass --replace",
            param_hint="--out",
        )
    budget_s = budget or (minutes * 60 if minutes else BUDGET_S)
    raise typer.Exit(run_all(run, SECTIONS, numbers, STARTED_S + budget_s, is_again=again))


def _put_on_path() -> None:
    """Let processes to come import this checkout, installed or not, and its stubs."""
    given = os.environ.get("PYTHONPATH", "")
    paths = [str(ROOT), str(ROOT / "protos"), *filter(None, given.split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    sys.path[:] = dict.fromkeys([*paths, *sys.path])


if __name__ == "__main__":
    app()
