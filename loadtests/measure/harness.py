"""The one program of all measures: options, turns, a table, and a result file.

A measure's options are the fields of a dataclass; each becomes a flag. Ways take turns,
A B C C B A, so that a machine that changes speed changes all of a round alike.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.turns import take_turns
from loadtests.measure.records import Figure, Measure, Options, tables
from loadtests.measure.results import Result, measured, write

OUTPUT = Path("build/loadtests/results")
Output = Annotated[
    Path, typer.Option(help="Folder of the result file; `loadtests/results` has published ones.")
]
PLAIN_WIDTH = 160  # of a table that goes into a file
console = Console()
if not console.is_terminal:
    console = Console(width=PLAIN_WIDTH)


def program(measures: Sequence[Measure]) -> typer.Typer:
    """A command for each measure; without one, the list of all."""
    app = typer.Typer(
        help="Measure one thing: ways in turns, figures as ratios within rounds, a result file.",
        no_args_is_help=True,
        add_completion=False,
    )
    for measure in measures:
        app.command(measure.name, help=f"{measure.claim}.")(command_of(measure))
    return app


def command_of(measure: Measure) -> Callable[..., None]:
    """The measure as a function, whose parameters are its options."""

    def command(**values: Any) -> None:
        output = values.pop("output")
        result = run(measure, measure.options(**values))
        console.print(f"result: {write(result, output)}")

    hints = get_type_hints(measure.options)
    hints = {each.name: _flag(hints[each.name], each) for each in fields(measure.options)}
    defaults = {each.name: _default(each) for each in fields(measure.options)}
    hints, defaults = hints | {"output": Output}, defaults | {"output": OUTPUT}
    parameters = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=hints[name]
        )
        for name, value in defaults.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = hints
    return command


def _flag(kind: Any, option: Field[Any]) -> Any:
    """The type of an option, as Typer reads it."""
    says = dict(option.metadata)
    flags = [says.pop("flag")] if "flag" in says else []
    return Annotated[kind, typer.Option(*flags, **says)]


def _default(option: Field[Any]) -> Any:
    return option.default_factory() if option.default_factory is not MISSING else option.default


def run(measure: Measure, options: Options, *, shows_progress: bool = True) -> Result:
    """The result of all turns, shown as a table."""
    with ExitStack() as stack:
        ways = measure.ways(options, stack)
        rounds = take_turns(ways, options.rounds, options.warm_up, shows_progress=shows_progress)
    figures = measure.figures(rounds)
    show(figures, console)
    return measured(measure.name, measure.page, measure.claim, figures, rounds)


def show(figures: Sequence[Figure], console: Console) -> None:
    """Tables of figures: a row for each way, a column for each figure."""
    for title, (columns, rows) in tables(figures).items():
        table = Table(title=title or None)
        table.add_column("", no_wrap=True)
        for name in columns:
            table.add_column(name, justify="right")
        for row, cells in rows.items():
            texts = (str(cells[name]) if name in cells else "" for name in columns)
            table.add_row(row, *texts)
        console.print(table)
