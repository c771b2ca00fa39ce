"""Errors of commands that train, with the exit codes of all commands."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from commands.errors import FAILURE, INTERRUPTED, WRONG_USAGE, print_error
from commands.remarks import showing_remarks
from models.errors import ModelError, SettingError, TrainingInterruptedError
from models.training.settings import TrainingSettings

DEFAULTS = TrainingSettings()
TRAINING_LIBRARIES = ("torch", "safetensors", "sklearn", "matplotlib", "huggingface_hub")
# The other flags are named after their field.
FLAGS = {"validation_fraction": "--validation", "pairs": "PAIRS", "word": "WORD"}


def parse_validation(value: str) -> tuple[float, Path | None]:
    """The fraction and the file that a value of --validation names; one of them is unused."""
    try:
        return float(value), None
    except ValueError:
        return DEFAULTS.validation_fraction, Path(value)


@contextmanager
def messages(command: str) -> Iterator[None]:
    """Prints errors of settings, files and libraries; others are bugs and have a traceback."""
    try:
        with showing_remarks(lambda remark: typer.echo(f"warning: {remark}", err=True)):
            yield
    except SettingError as error:
        flag = FLAGS.get(error.field, f"--{error.field.replace('_', '-')}")
        message = f"{error.value!r} is not allowed, it must be {error.limit}"
        raise typer.BadParameter(message, param_hint=flag) from error
    except TrainingInterruptedError as error:
        fail(
            f"training was interrupted {error}; the same command continues from there", INTERRUPTED
        )
    except ModelError as error:
        fail(str(error), FAILURE)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in TRAINING_LIBRARIES:
            raise
        missing = "PyTorch" if error.name == "torch" else error.name
        remedy = "pip install 'attendant[cpu,train]'"
        fail(f"attendant {command} needs {missing}: {remedy}", WRONG_USAGE)


def fail(message: str, exit_code: int) -> None:
    print_error(message)
    raise typer.Exit(exit_code)
