"""`attendant demo NAME`: the commands of a row of docs/lectures.md, one after the other.

What a demo runs is what anybody would type, and it is shown before it is run. Folders that exist
are done: a demo that was stopped goes on where it was.
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

from demos.server import ATTENDANT, serving
from demos.systems import DEMOS, Demo, Places, Step
from models.flags import completing
from service.errors import AttendantError

DEFAULT_FOLDER = Path("build/demos")
# Of this very environment, whatever the path says.
OUR_OWN: dict[str, tuple[str, ...]] = {"attendant": ATTENDANT, "python": (sys.executable,)}

Run = Callable[[Sequence[str]], None]


class StepError(AttendantError):
    """A command of a demo ended with another exit code than 0."""


@dataclass(frozen=True, slots=True)
class Took:
    """How long the parts of a demo took, in seconds."""

    building_s: float
    answering_s: float


def demo(
    name: Annotated[
        str,
        typer.Argument(
            help="Which system; none lists them.",
            show_default=False,
            autocompletion=completing(DEMOS),
        ),
    ] = "",
    output: Annotated[
        Path, typer.Option(envvar="ATTENDANT_DEMO_OUTPUT", help="Folder for what is built.")
    ] = DEFAULT_FOLDER,
) -> None:
    """Train a system of the lectures from nothing, export it, serve it and ask it."""
    console = Console()
    if not name:
        console.print(listing())
        return
    if name not in DEMOS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(DEMOS)}", param_hint="NAME")
    took = play(DEMOS[name], Places(output / name), shown(console))
    console.print(
        f"{name}: built in {took.building_s:.0f} s, served and asked in {took.answering_s:.0f} s",
        highlight=False,
    )


def listing() -> Table:
    """All demos, and what they show."""
    table = Table("name", "system", "what is trained and asked", box=None, pad_edge=False)
    for name, each in DEMOS.items():
        table.add_row(name, each.system, each.what)
    return table


def play(each: Demo, places: Places, run: Run, *, is_brief: bool = False) -> Took:
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
    return Took(built_s - began_s, time.monotonic() - built_s)


def shown(console: Console) -> Run:
    """Runs commands in processes of their own, each below the line that anybody would type."""

    def run(arguments: Sequence[str]) -> None:
        console.print(f"\n$ {shlex.join(arguments)}", style="bold", highlight=False)
        program, *rest = arguments
        command = [*OUR_OWN.get(program, (program,)), *rest]
        exit_code = subprocess.run(command, check=False).returncode  # noqa: S603
        if exit_code:
            raise StepError(f"{shlex.join(arguments)}: exit code {exit_code}")

    return run
