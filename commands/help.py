"""The classes of commands and groups: their `--help`, and the older names of their variables.

Imports neither rich nor what draws with it before a help is asked for: a shell's completion has
both classes, too.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from typer.core import TyperCommand, TyperGroup

from commands.variables import read_older, warn_of_older

COMMANDS = "Commands"


class Command(TyperCommand):
    """A command whose arguments and options are shown in panels, in their order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        read_older(self)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        warn_of_older(ctx)
        return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        from commands.help_panels import print_command

        print_command(self, ctx)


class CommandGroup(TyperGroup):
    """A group whose commands and options are shown in panels; names a command close to a typo."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self.get_params(ctx):
            if getattr(option, "is_bool_flag", False) and option.default is None:
                option.default = False  # None is read with pydantic, whose import takes long
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        from commands.help_panels import print_group

        panels = self.panels(self.list_commands(ctx))
        listed = {
            title: [self.listed(ctx, name) for name in names] for title, names in panels.items()
        }
        print_group(self, ctx, listed)

    def listed(self, ctx: Any, name: str) -> Any:
        """A command as lists show it, with its name and its help."""
        return self.get_command(ctx, name)

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
