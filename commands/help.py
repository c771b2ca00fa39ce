"""The `--help` of a command: every option on a line of its own, with its text below.

Typer's own table has six columns. In a terminal of 80 characters it cuts the names of options and
of environment variables, and leaves 17 characters for the texts.
"""

from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text
from typer.core import TyperCommand

ARGUMENTS, OPTIONS = "Arguments", "Options"
SEPARATOR = "  ["  # of click, between a help text and what it adds: variable, default and range


class Command(TyperCommand):
    """A command whose arguments and options are shown in panels, in their order."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        console = Console(highlight=False)
        console.print(Text(self.get_usage(ctx), "bold"))
        console.print(Padding(Text(" ".join((self.help or "").split())), (1, 0)))
        panels: dict[str, list[Any]] = {ARGUMENTS: [], OPTIONS: []}
        for parameter in self.get_params(ctx):
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
