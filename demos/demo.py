"""`attendant demo NAME`: the commands of one system of docs/tutorial/lectures, one after another.

Each command is printed before it runs, as a user would type it. A command whose folder exists is
done: a demo that was stopped goes on where it was.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from commands.flags import completing
from demos.keeping import keep as keep_models
from demos.server import ATTENDANT, serving
from demos.steps import Places, Step
from demos.systems import DEMOS, Demo
from service.errors import AttendantError

DEFAULT_FOLDER = Path("build/demos")
REPOSITORY = Path("model_repository")
# Programs of this very environment, whatever the path says.
PROGRAMS: dict[str, tuple[str, ...]] = {"attendant": ATTENDANT, "python": (sys.executable,)}

Run = Callable[[Sequence[str]], None]


class StepError(AttendantError):
    """A command of a demo ended with another exit code than 0."""


@dataclass(frozen=True, slots=True)
class Durations:
    """The durations of a demo's parts."""

    building_s: float
    answering_s: float


def demo(
    name: Annotated[
        str,
        typer.Argument(
            help="Name of the system; without one, list them.",
            show_default=False,
            autocompletion=completing(DEMOS),
        ),
    ] = "",
    output: Annotated[
        Path,
        typer.Option(
            envvar="ATTENDANT_DEMO_OUTPUT", help="Folder for data, checkpoints and models."
        ),
    ] = DEFAULT_FOLDER,
    keep: Annotated[
        bool,
        typer.Option(
            envvar="ATTENDANT_DEMO_KEEP",
            help="Put its models into the model repository too. A server that polls it, as that of "
            "`make serve`, loads them by itself.",
        ),
    ] = False,
    repository: Annotated[
        Path,
        typer.Option(envvar="ATTENDANT_MODEL_REPOSITORY", help="Model repository for --keep."),
    ] = REPOSITORY,
) -> None:
    console = Console()
    if not name:
        console.print(listing())
        return
    if name not in DEMOS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(DEMOS)}", param_hint="NAME")
    places = Places(output / name)
    durations = run_demo(DEMOS[name], places, printing_runner(console))
    console.print(
        f"{name}: built in {durations.building_s:.0f} s, "
        f"served and asked in {durations.answering_s:.0f} s",
        highlight=False,
    )
    if keep:
        kept = keep_models(DEMOS[name], places, repository)
        added = ", ".join(kept) or "nothing: models of these names are there"
        console.print(f"added to {repository}: {added}", highlight=False)


def listing() -> Table:
    """All demos, and what they show."""
    table = Table("name", "system", "what is trained and asked", box=None, pad_edge=False)
    for name, each in DEMOS.items():
        table.add_row(name, each.system, each.what)
    return table


def run_demo(each: Demo, places: Places, run: Run, *, is_brief: bool = False) -> Durations:
    """Build what is not there yet, serve it, and ask; `is_brief` trains for seconds, to test it."""
    places.folder.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    for step in each.steps:
        if not step.is_done(places):
            run(step.arguments(places, is_brief=is_brief))
    built_s = time.monotonic()
    with serving(places.folder / "repository") as address:
        for call in each.calls:
            run(Step(f"attendant {call} --address {address}").arguments(places))
    return Durations(built_s - began_s, time.monotonic() - built_s)


def printing_runner(console: Console) -> Run:
    """Runs commands in processes of their own, each below the line that a user would type."""

    def run(arguments: Sequence[str]) -> None:
        console.print(f"\n$ {shlex.join(arguments)}", style="bold", highlight=False)
        program, *rest = arguments
        command = [*PROGRAMS.get(program, (program,)), *rest]
        exit_code = subprocess.run(command, check=False).returncode  # noqa: S603
        if exit_code:
            raise StepError(f"{shlex.join(arguments)}: exit code {exit_code}")

    return run
