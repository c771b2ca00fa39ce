"""Draws the `--help` of commands and groups: each option on a line, with its text below.

Typer's own table has six columns. In a terminal of 80 characters it cuts the names of options and
of environment variables, and leaves 17 characters for the texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

ARGUMENTS, OPTIONS = "Arguments", "Options"
SEPARATOR = "  ["  # of click, between a help text and what it adds: variable, default and range


def print_command(command: Any, ctx: Any) -> None:
    """Print how a command is used, with its arguments and options."""
    console = Console(highlight=False)
    _print_start(console, command, ctx)
    _print_parameters(console, command, ctx)


def print_group(group: Any, ctx: Any, panels: Mapping[str, Sequence[Any]]) -> None:
    """Print how a group is used, with the commands of each panel, and its options."""
    console = Console(highlight=False)
    _print_start(console, group, ctx)
    width = max(len(command.name) for panel in panels.values() for command in panel)
    for title, panel in panels.items():
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(style="cyan", no_wrap=True, min_width=width)
        for command in panel:
            rows.add_row(command.name, Text(" ".join((command.help or "").split())))
        console.print(Panel(rows, title=title, title_align="left"))
    _print_parameters(console, group, ctx)


def _print_start(console: Console, command: Any, ctx: Any) -> None:
    """Print how a command is used and what it does."""
    console.print(Text(command.get_usage(ctx), "bold"))
    console.print(Padding(Text(" ".join((command.help or "").split())), (1, 0)))


def _print_parameters(console: Console, command: Any, ctx: Any) -> None:
    """Print the panels of arguments and options, in their order."""
    panels: dict[str, list[Any]] = {ARGUMENTS: [], OPTIONS: []}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            panels.setdefault(panel_of(parameter), []).extend(_entry(*record))
    for title, entries in panels.items():
        if entries:
            console.print(Panel(Group(*entries), title=title, title_align="left"))


def panel_of(parameter: Any) -> str:
    """The title of a parameter's panel."""
    usual = ARGUMENTS if parameter.param_type_name == "argument" else OPTIONS
    return getattr(parameter, "rich_help_panel", None) or usual


def _entry(name: str, text: str) -> tuple[Text, Padding]:
    """A parameter's name and type, and below them its text, variable, default and range."""
    text, _, extra = text.rpartition(SEPARATOR) if SEPARATOR in text else (text, "", "")
    shown = Text(text)
    if extra:
        added = " ".join(f"[{each}]" for each in extra.removesuffix("]").split("; "))
        shown.append(f"\n{added}", "dim")
    return Text(name, "cyan"), Padding(shown, (0, 0, 0, 4))
