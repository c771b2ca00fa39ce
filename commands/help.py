"""The `--help` of commands and groups: every option on a line of its own, with its text below.

Typer's own table has six columns. In a terminal of 80 characters it cuts the names of options and
of environment variables, and leaves 17 characters for the texts.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from commands.variables import read_older, warn_of_older

ARGUMENTS, OPTIONS, COMMANDS = "Arguments", "Options", "Commands"
SEPARATOR = "  ["  # of click, between a help text and what it adds: variable, default and range


class Command(TyperCommand):
    """A command whose arguments and options are shown in panels, in their order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        read_older(self)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        warn_of_older(ctx)
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        console = Console(highlight=False)
        _print_start(console, self, ctx)
        _print_parameters(console, self, ctx)


class CommandGroup(TyperGroup):
    """A group whose commands and options are shown in panels; names a command close to a typo."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        console = Console(highlight=False)
        _print_start(console, self, ctx)
        names = self.list_commands(ctx)
        width = max(map(len, names))
        for title, panel in self.panels(names).items():
            rows = Table.grid(padding=(0, 2, 0, 0))
            rows.add_column(style="cyan", no_wrap=True, min_width=width)
            for name in panel:
                command = self.get_command(ctx, name)
                assert command is not None, "it is listed"
                rows.add_row(name, Text(" ".join((command.help or "").split())))
            console.print(Panel(rows, title=title, title_align="left"))
        _print_parameters(console, self, ctx)

    def panels(self, names: Sequence[str]) -> dict[str, Sequence[str]]:
        """Names of commands by the panel that shows them: one panel."""
        return {COMMANDS: names}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, names = args[0], self.list_commands(ctx)
        if name in names or name.startswith("-"):
            return super().resolve_command(ctx, args)
        matches = " or ".join(f"'{match}'" for match in get_close_matches(name, names))
        suggestion = f" Did you mean {matches}?" if matches else ""
        return ctx.fail(f"No such command '{name}'.{suggestion}")


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
