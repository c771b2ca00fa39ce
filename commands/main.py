"""The `attendant` command: a table of its commands, each imported when it is called.

Serving therefore imports no PyTorch, and a command whose libraries are missing says what to
install.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from commands.ask.client.health import main as check_health
from commands.ask.client.refusal import CallError
from commands.ask.options import console
from commands.errors import FAILURE, WRONG_USAGE, print_error
from commands.help import Command, CommandGroup
from service import __version__
from service.errors import AttendantError, SettingError

PROGRAM = "attendant"
# By name, the module and the function or the `typer.Typer`; in the order of `attendant --help`.
COMMANDS = {
    "serve": "commands.serve:serve_command",
    "models": "commands.ask.tasks:models",
    "classify": "commands.ask.tasks:classify",
    "embed": "commands.ask.tasks:embed",
    "score": "commands.ask.tasks:score",
    "rerank": "commands.ask.rerank:rerank",
    "generate": "commands.ask.generate:generate",
    "chat": "commands.ask.chat:chat",
    "features": "commands.ask.features:features",
    "similarity": "commands.ask.features:similarity",
    "infer": "commands.ask.infer:infer",
    "fill-mask": "commands.ask.fill_mask:fill_mask",
    "classify-tokens": "commands.ask.reading:classify_tokens",
    "answer": "commands.ask.reading:answer",
    "classify-image": "commands.ask.vision:classify_image",
    "attention": "commands.ask.attention:attention",
    "healthcheck": "commands.main:healthcheck",
    "import": "commands.train.train:import_checkpoint",
    "export": "commands.export:export",
    "import-adapter": "commands.import_adapter:import_adapter",
    "train": "commands.train.train:train",
    "pretrain": "commands.train.pretrain:pretrain",
    "demo": "demos.demo:demo",
    "ladder": "demos.ladder:ladder",
    "probe": "commands.train.probe:probe",
    "seq2seq": "commands.train.seq2seq:seq2seq",
    "vision": "commands.train.vision:vision",
    "words": "commands.train.words:words",
}
# Panels of `attendant --help`, each with the first of its commands in the table.
HELP_PANELS = {
    "Serve and ask": "serve",
    "Models": "import",
    "Train": "train",
    "Systems of the lectures": "demo",
}
# A health check parses its own arguments, without typer: it is run every few seconds.
OWN_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


# The base of typer's errors of usage, which has no public name.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Commands(CommandGroup):
    """The commands of the table."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run a command and exit; wrong usage is printed as one line."""
        try:
            exit_code = super().main(*args, **extra | {"standalone_mode": False})
        except UsageError as error:
            _print_usage(error)
            sys.exit(WRONG_USAGE)
        except typer.Abort:
            sys.exit(FAILURE)
        sys.exit(exit_code or 0)

    def list_commands(self, ctx: object) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def panels(self, names: Sequence[str]) -> dict[str, Sequence[str]]:
        """Names of commands by the panel that shows them."""
        starts = [names.index(first) for first in HELP_PANELS.values()]
        ends = [*starts[1:], len(names)]
        spans = zip(HELP_PANELS, starts, ends, strict=True)
        return {title: names[start:end] for title, start, end in spans}

    def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | TyperGroup | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        if isinstance(command, typer.Typer):  # has commands of its own
            command.info.cls = CommandGroup
            group = typer.main.get_group(command)
            group.name = cmd_name
            return group
        single = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
        is_check = cmd_name == "healthcheck"
        single.command(
            cmd_name,
            cls=Command,
            add_help_option=not is_check,
            context_settings=OWN_ARGUMENTS if is_check else None,
        )(command)
        made = typer.main.get_command(single)
        assert isinstance(made, TyperCommand), "it has one command, and no callback"
        return made


app = typer.Typer(
    cls=Commands,
    help="Serve transformer models over gRPC and HTTP.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_usage(error: Any) -> None:
    """Print wrong usage; nothing where the help is printed in its place."""
    text = error.format_message()
    if text:
        path = error.ctx.command_path if error.ctx else PROGRAM
        print_error(f"{text.rstrip('.')}{'' if text.endswith('?') else '.'} See '{path} --help'.")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        console.print(__version__, highlight=False)
        raise typer.Exit


def healthcheck(context: typer.Context) -> None:
    """Check the server's health, by gRPC or HTTP: exit code 0 if SERVING, else 1."""
    raise typer.Exit(check_health(context.args))


def _is_completion_without_words() -> bool:
    """Whether completions are asked for as bash does, without the variables that bash sets."""
    is_asked = os.environ.get("_ATTENDANT_COMPLETE") == "complete_bash"
    has_words = "COMP_WORDS" in os.environ and os.environ.get("COMP_CWORD", "").isdecimal()
    return is_asked and not has_words


def main() -> None:
    """Entry point of the console script."""
    if _is_completion_without_words():
        return
    try:
        app(prog_name=PROGRAM)
    except AttendantError as error:
        print_error(str(error))
        sys.exit(WRONG_USAGE if isinstance(error, SettingError) else FAILURE)
    except CallError as error:
        print_error(str(error))
        sys.exit(FAILURE)
    except UnicodeEncodeError as error:  # bytes of the command line that no text has
        print_error(f"an argument or a variable is not UTF-8: {error.object!a}")
        sys.exit(WRONG_USAGE)
    except OSError as error:  # such as a full disk behind stdout
        print_error(str(error))
        sys.exit(FAILURE)
