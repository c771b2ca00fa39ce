"""The run of `attendant train`, after its arguments are parsed.

Knows nothing about flags or exit codes (`commands/train/train.py` does). This is where files,
training and the terminal meet; it imports PyTorch, so the command line imports it only when it
runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from rich.console import Console
from rich.table import Table

from commands.train.progress import TrainingBar
from commands.train.reports import (
    answer_table,
    confusion_table,
    entity_table,
    reports_of,
    score_table,
)
from commands.train.running import run_training, save_trained
from models.checkpoints.checkpoint import (
    check_replaceable,
    load_checkpoint,
)
from models.data.datasets import DEFAULT_COLUMNS, Columns, D, Splits, read_dataset, split
from models.data.questions import QuestionDataset, read_questions
from models.data.tagged import TaggedDataset, read_sentences
from models.errors import SettingError, check_choice
from models.recipes.answering import QUESTION_ANSWERING
from models.recipes.findings import remark_on_run
from models.recipes.finetune import TEXT_CLASSIFICATION, Recipe, finetune_by, with_rate
from models.recipes.pair_scoring import PAIR_SCORING, ScoredPairs, read_scored_pairs
from models.recipes.tagging import TOKEN_CLASSIFICATION
from models.training.settings import TRAIN_TASKS, TrainingSettings
from models.training.supervised import J, R


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Labelled texts; a part without a file of its own is split off from `data`."""

    data: Path
    validation: Path | None = None
    test: Path | None = None
    columns: Columns = DEFAULT_COLUMNS


@dataclass(frozen=True, slots=True)
class TrainedTask(Generic[D, R, J]):
    """A task's functions for reading and splitting data, learning, and showing figures."""

    recipe: Recipe[D, R, J]
    read: Callable[[Path, Columns], D]
    split: Callable[[D, Sequence[float], int], list[D]]
    table: Callable[[J, str], Table]


def _without_columns(read: Callable[[Path], D]) -> Callable[[Path, Columns], D]:
    """The reader of a file whose form names no columns, which refuses names of columns."""

    def read_file(path: Path, columns: Columns) -> D:
        if columns != DEFAULT_COLUMNS:
            limit = f"left out: {path} has no columns with names"
            raise SettingError("text_column", columns.text, limit)
        return read(path)

    return read_file


TRAINED_TASKS: dict[str, TrainedTask[Any, Any, Any]] = {
    "text-classification": TrainedTask(TEXT_CLASSIFICATION, read_dataset, split, confusion_table),
    "token-classification": TrainedTask(
        TOKEN_CLASSIFICATION, _without_columns(read_sentences), TaggedDataset.split, entity_table
    ),
    "question-answering": TrainedTask(
        QUESTION_ANSWERING, _without_columns(read_questions), QuestionDataset.split, answer_table
    ),
    "pair-scoring": TrainedTask(PAIR_SCORING, read_scored_pairs, ScoredPairs.split, score_table),
}
assert tuple(TRAINED_TASKS) == TRAIN_TASKS, "the command line lists the tasks"


def train(
    task: str,
    files: DataFiles,
    source: str,
    output: Path,
    settings: TrainingSettings,
    *,
    resume: bool,
) -> None:
    """Fine-tune `source` for a task, and write checkpoint and reports to `output`."""
    check_choice("task", task, TRAINED_TASKS)
    chosen = TRAINED_TASKS[task]
    check_replaceable(output)  # now, rather than after the training
    splits = read_splits(chosen, files, settings)
    base = load_checkpoint(source)
    settings = with_rate(settings, base)
    finetuned = run_training(
        lambda session: finetune_by(chosen.recipe, base, splits, settings, session),
        TrainingBar(),
        output,
        resume=resume,
    )
    reports = reports_of(finetuned, base.origin, splits, settings)
    save_trained(finetuned.checkpoint, output, reports, source)
    console = Console()
    remark_on_run(finetuned)
    console.print(chosen.table(finetuned.evaluation, finetuned.evaluated_on))
    if learnt := finetuned.checkpoint.text_network.learnt_description:
        console.print(learnt, highlight=False)
    console.print(f"{output}: epoch {finetuned.progress.best_number}", highlight=False)


def read_splits(
    task: TrainedTask[D, R, J], files: DataFiles, settings: TrainingSettings
) -> Splits[D]:
    """The rows of the files; parts without a file of their own are held out from the data."""
    if files.test is not None and settings.test_fraction:
        raise SettingError("test_fraction", settings.test_fraction, "0 if a test file is given")
    fraction = 0.0 if files.validation else settings.validation_fraction
    data = task.read(files.data, files.columns)
    train, validation, test = task.split(data, [fraction, settings.test_fraction], settings.seed)
    if files.validation is not None:
        validation = task.read(files.validation, files.columns)
    if files.test is not None:
        test = task.read(files.test, files.columns)
    return Splits(train, validation, test if len(test) else None)
