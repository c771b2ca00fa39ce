"""`attendant train`: arguments in, messages and exit codes out.

Imports no PyTorch until a command runs, so that the command line works without it and can say what
to install.
"""

from pathlib import Path
from typing import Any

from commands.columns import column_flags, columns_of
from commands.flags import argument, command_of, flag, flags_of
from commands.train.messages import DEFAULTS, messages, parse_validation
from commands.train.options import output_flag, resume_flag
from models.training.settings import TRAIN_TASKS, TrainingSettings

TRAIN = "ATTENDANT_TRAIN"


def _train(
    *,
    data: Path,
    start: str,
    output: Path,
    task: str,
    validation: str,
    test_file: Path | None,
    label_column: str,
    text_column: str,
    pair_column: str,
    resume: bool,
    **values: Any,
) -> None:
    with messages("train"):
        fraction, validation_file = parse_validation(validation)
        settings = TrainingSettings(validation_fraction=fraction, **values)
        from commands.train.train_runs import DataFiles, train

        columns = columns_of(label_column, text_column, pair_column)
        files = DataFiles(data, validation_file, test_file, columns)
        train(task, files, start, output, settings, resume=resume)


train = command_of(
    _train,
    [
        argument(
            "data",
            Path,
            "Labelled texts: .tsv (label<TAB>text, or with a header), .csv with a header, or "
            ".jsonl; columns named text and label, and text_pair where pairs are labelled, or as "
            "--text-column, --label-column and --pair-column say. Tagged "
            "words: word<TAB>tag, a blank line between sentences. Questions: SQuAD's .json, or "
            ".jsonl.",
            f"{TRAIN}_DATA",
        ),
        flag(
            "start",
            str,
            ...,
            "Checkpoint to start from: a folder of Attendant or Hugging Face, or a hub id. A "
            "classifier with the same labels keeps its head; otherwise the head is new.",
            f"{TRAIN}_FROM",
            spelt=["--from"],
        ),
        output_flag(TRAIN, "training.json, confusion.png, wrong.csv and loss.png"),
        flag(
            "task",
            str,
            "text-classification",
            "Task to train: labels of texts, IOB tags of words (named entities), answers in a "
            "context, or scores from 0 to 1 of how well two texts match.",
            f"{TRAIN}_TASK",
            choices=TRAIN_TASKS,
        ),
        flag(
            "validation",
            str,
            str(DEFAULTS.validation_fraction),
            "A file, or the fraction of DATA to hold out (stratified) for choosing the best "
            "epoch. A tenth: enough to rank epochs, and little lost for training.",
            f"{TRAIN}_VALIDATION",
        ),
        flag(
            "test_file",
            Path | None,
            None,
            "Labelled texts for the final figures, in place of --test-fraction. By default the "
            "figures are measured on the validation rows.",
            f"{TRAIN}_TEST_FILE",
            shown="none",
        ),
        *column_flags(TRAIN, "DATA"),
        *flags_of(TrainingSettings, TRAIN, omit=["validation_fraction"]),
        resume_flag(TRAIN),
    ],
)
