"""`attendant export`: arguments in, messages and exit codes out; PyTorch only when it runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from commands.columns import column_flags, columns_of
from commands.errors import FAILURE, WRONG_USAGE, errors, print_error
from commands.flags import argument, command_of, flag, flags_of
from commands.remarks import showing_remarks
from export.errors import ExportError
from export.settings import ExportSettings
from models.errors import ModelError

PREFIX = "ATTENDANT_EXPORT"
TASKS = ("features", "embedding", "attention")  # beside the checkpoint's own


def _export(
    *,
    checkpoint: str,
    task: str | None,
    labelled_data: Path | None,
    held_out: Path | None,
    calibration: Path | None,
    examples: Path | None,
    labelled_examples: bool,
    label_column: str,
    text_column: str,
    pair_column: str,
    **values: Any,
) -> None:
    try:
        from commands.export_runs import DataFiles, export_model
    except ImportError as error:
        print_error(f"attendant export needs PyTorch: pip install 'attendant[cpu,train]' ({error})")
        raise typer.Exit(WRONG_USAGE) from error
    with _messages():
        columns = columns_of(label_column, text_column, pair_column)
        files = DataFiles(
            labelled_data, held_out, calibration, examples, columns, labelled_examples
        )
        export_model(checkpoint, task, files, ExportSettings(**values), errors)


@contextmanager
def _messages() -> Iterator[None]:
    """Turns errors of files and settings into one line and an exit code, and prints warnings."""

    def warn(remark: str) -> None:
        errors.print(Text(f"warning: {remark}"), soft_wrap=True)

    try:
        with showing_remarks(warn):
            yield
    except (ExportError, ModelError, OSError, UnicodeDecodeError) as error:
        print_error(str(error))
        raise typer.Exit(FAILURE) from error


export = command_of(
    _export,
    [
        argument(
            "checkpoint",
            str,
            "Checkpoint folder, Hugging Face folder, or hub id.",
            f"{PREFIX}_CHECKPOINT",
        ),
        *flags_of(
            ExportSettings,
            PREFIX,
            omit=["calibration", "calibration_images", "examples"],
            has_limits=True,
        ),
        flag(
            "task",
            str | None,
            None,
            "Task to export the checkpoint for: features, all hidden states of its encoder; "
            "embedding, one vector per text, of an ELMo; attention, its attention weights. By "
            "default the checkpoint's own task.",
            f"{PREFIX}_TASK",
            shown="its own",
            choices=TASKS,
        ),
        flag(
            "labelled_data",
            Path | None,
            None,
            "TSV, CSV or JSONL file of labelled texts to measure accuracy on.",
            f"{PREFIX}_LABELLED_DATA",
        ),
        flag(
            "held_out",
            Path | None,
            None,
            "Decoders: plain text that was not used in training, to measure perplexity on.",
            f"{PREFIX}_HELD_OUT",
        ),
        flag(
            "calibration",
            Path | None,
            None,
            "Plain text, one text per line, to calibrate int8 and the weights of int4-weights on: "
            "texts like those of future requests. By default English texts that come with "
            "Attendant and Python. Of a model that reads images, a folder of PNG and JPEG files: "
            "without one there is no int8.",
            f"{PREFIX}_CALIBRATION",
        ),
        flag(
            "examples",
            Path | None,
            None,
            "Texts to try the model with, one per line; a tab stands before the second text of a "
            "pair, and between a question and its context. Of a model that reads images, a name, "
            "a tab, and the path of an image file beside this file. By default general texts.",
            f"{PREFIX}_EXAMPLES",
        ),
        flag(
            "labelled_examples",
            bool,
            False,
            "Take six of the labelled texts as examples. They are then in the model's manifest, "
            "on the page and in ListModels, for everyone who reaches the server.",
            f"{PREFIX}_LABELLED_EXAMPLES",
        ),
        *column_flags(PREFIX, "--labelled-data"),
    ],
)
