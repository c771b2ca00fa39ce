"""Check Attendant on a GPU: `python -m loadtests.gpu`, or `make gpu-check`.

    python -m loadtests.gpu                          every section, in 12 minutes
    python -m loadtests.gpu --sections 2,6 --again   two of them once more
    python -m loadtests.gpu --device cpu --tiny      its own logic, on a machine without a GPU

Runs from a checkout with the packages of `README.md` there, whether or not Attendant is installed.
Each section leaves a JSON file as soon as it has ended, and a later run goes on behind it; so the
command can be stopped and started again. `report.md` and `report.json` are written at the end.
docs/cuda.md says what was verified on CUDA.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from commands.help import Command
from loadtests.gpu.context import Run
from loadtests.gpu.running import run_all, sections_of_others
from loadtests.gpu.sections import SECTIONS, chosen

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
OUT = Path("build/gpu-check")
ROOT = Path(__file__).parents[2]


@app.command(cls=Command)
def main(
    out: Annotated[
        Path, typer.Option(help="Folder of the report and of what it is made of.")
    ] = OUT,
    sections: Annotated[
        str, typer.Option(help="Numbers of the sections to run, as in 2,6; by default all.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Run sections that are done already once more.")
    ] = False,
    minutes: Annotated[
        float,
        typer.Option(min=0.1, help="Time for all sections, of which each has a share."),
    ] = 12.0,
    device: Annotated[Literal["cuda", "cpu"], typer.Option(help="Where models run.")] = "cuda",
    tiny: Annotated[
        bool, typer.Option("--tiny", help="Take models and loads of the smallest size.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Replace the results of another device or size in the folder."
        ),
    ] = False,
) -> None:
    """Check Attendant on this machine's GPU, and write a report."""
    _put_on_path()
    try:
        numbers = chosen(sections, SECTIONS)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--sections") from error
    run = Run(out.absolute(), device, is_tiny=tiny)
    others = sections_of_others(run, SECTIONS)
    if others and not replace:
        raise typer.BadParameter(
            f"{out} has results of another device or size, sections {', '.join(map(str, others))}: "
            "choose another folder, or pass --replace",
            param_hint="--out",
        )
    is_good = run_all(run, SECTIONS, numbers, minutes * 60, is_again=again)
    raise typer.Exit(0 if is_good else 1)


def _put_on_path() -> None:
    """Let processes to come import this checkout, installed or not, and its stubs."""
    given = os.environ.get("PYTHONPATH", "")
    paths = [str(ROOT), str(ROOT / "protos"), *filter(None, given.split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    sys.path[:] = dict.fromkeys([*paths, *sys.path])


if __name__ == "__main__":
    app()
