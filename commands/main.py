"""The `attendant` command: a table of its commands, each imported when it is called.

Serving therefore imports no PyTorch, and a command whose libraries are missing says what to
install. The list of commands, in a shell's completion or in `--help`, imports none of them.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from commands.ask.client.refusal import CallError
from commands.ask.verbs import VERBS
from commands.errors import FAILURE, WRONG_USAGE, print_error
from commands.help import Command, CommandGroup
from service import __version__
from service.errors import AttendantError, SettingError

PROGRAM = "attendant"


class Row(NamedTuple):
    """A command of the table, which help and completion show without importing it."""

    place: str  # of the function or the `typer.Typer`: its module and name; empty for a verb
    help: str


# By name, in the order of `attendant --help`.
COMMANDS = {
    "serve": Row(
        "commands.serve:serve_command",
        "Serve folders, hub ids or a model repository. On SIGTERM, finish accepted requests, then "
        "exit.",
    ),
    **{name: Row("", verb.help) for name, verb in VERBS.items()},
    "healthcheck": Row(
        "commands.main:healthcheck",
        "Check the server's health, by gRPC or HTTP: exit code 0 if SERVING, else 1.",
    ),
    "explain": Row(
        "commands.folders.explain_command:explain",
        "Say what a folder or hub id is, what is taken of it, and what serving it costs here.",
    ),
    "verify": Row(
        "commands.folders.verify_command:verify",
        "Compare a served model with the folder that it was made of, and that with transformers.",
    ),
    "import": Row(
        "commands.folders.import_command:import_checkpoint",
        "Convert a Hugging Face checkpoint to Attendant's format.",
    ),
    "export": Row(
        "commands.export:export",
        "Export a checkpoint to ONNX, check the result, and write it to a model repository.",
    ),
    "import-adapter": Row(
        "commands.import_adapter:import_adapter",
        "Put a LoRA adapter of PEFT's into a model repository, beside its base model.",
    ),
    "train": Row(
        "commands.train.train:train",
        "Fine-tune a checkpoint to classify texts, tag words, answer questions or score pairs.",
    ),
    "pretrain": Row("commands.train.pretrain:pretrain", "Train a language model on plain text."),
    "demo": Row(
        "demos.demo:demo",
        "Train a system of the lectures, export it, serve it and send it requests.",
    ),
    "ladder": Row(
        "demos.ladder:ladder",
        "Train five kinds of text classifier, and compare their accuracy and cost.",
    ),
    "probe": Row(
        "commands.train.probe:probe",
        "Train a linear NER probe on each frozen layer and compare their F1.",
    ),
    "seq2seq": Row(
        "commands.train.seq2seq:seq2seq",
        "Train a network that reads one sequence and writes another.",
    ),
    "vision": Row(
        "commands.train.vision:vision",
        "Train a Vision Transformer to classify handwritten digits or your own images.",
    ),
    "words": Row(
        "commands.train.words:words",
        "Train word vectors, and find similar words and analogies.",
    ),
}
# Panels of `attendant --help`, each with the first of its commands in the table.
HELP_PANELS = {
    "Serve and ask": "serve",
    "Models": "explain",
    "Train": "train",
    "Systems of the lectures": "demo",
}
HELP_FLAGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
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

    def listed(self, ctx: object, name: str) -> TyperCommand:  # noqa: ARG002
        return TyperCommand(name, help=COMMANDS[name].help)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        listed: list[Any] = [self.listed(ctx, name) for name in COMMANDS]
        group = TyperGroup(commands=listed, params=self.params)
        return group.shell_complete(typer.Context(group, **HELP_FLAGS), incomplete)

    def get_command(self, ctx: object, cmd_name: str) -> TyperCommand | TyperGroup | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command, text = _loaded(cmd_name), COMMANDS[cmd_name].help
        if isinstance(command, typer.Typer):  # has commands of its own
            command.info.cls = CommandGroup
            command.info.help = text
            group = typer.main.get_group(command)
            group.name = cmd_name
            return group
        single = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
        is_check = cmd_name == "healthcheck"
        single.command(
            cmd_name,
            cls=Command,
            help=text,
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
    context_settings=HELP_FLAGS,
)


def _loaded(name: str) -> Any:
    """The function of a command, or its group, and what they import."""
    if name in VERBS:
        from commands.ask.verb_command import command_of_verb

        return command_of_verb(name)
    module, _, function = COMMANDS[name].place.partition(":")
    return getattr(import_module(module), function)


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
        print(__version__)  # noqa: T201
        raise typer.Exit


def healthcheck(context: typer.Context) -> None:
    from commands.ask.client.health import main as check_health

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
