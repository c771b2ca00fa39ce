"""The runs of `attendant train` and `attendant import`, after their arguments are parsed.

Knows nothing about flags or exit codes (`commands/train/train.py` does). This is where files,
training and the terminal meet; it imports PyTorch, so the command line imports it only when it
runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from commands.train.running import run_training, save_trained, summary
from models.checkpoints.adapters import merged
from models.checkpoints.checkpoint import (
    Checkpoint,
    check_replaceable,
    load_checkpoint,
    save_checkpoint,
)
from models.checkpoints.embedder_use import parse_dimensions
from models.checkpoints.peft import read_peft
from models.checkpoints.yes_no import as_yes_no_scorer, read_template, with_pair_template
from models.data.datasets import DEFAULT_COLUMNS, Columns, D, Splits, read_dataset, split
from models.data.questions import QuestionDataset, read_questions
from models.data.tagged import TaggedDataset, read_sentences
from models.errors import SettingError, check_choice
from models.networks.decoder_readers import DecoderEmbedder, DecoderReader, without_output
from models.networks.gpt import GPT
from models.networks.heads import TextEmbedder
from models.networks.llama import Llama
from models.networks.retrieval import TermEmbedder, ThreeWayEmbedder
from models.networks.vector_maps import VectorMaps, VectorNorm
from models.recipes.answering import QUESTION_ANSWERING
from models.recipes.findings import remark_on_run
from models.recipes.finetune import TEXT_CLASSIFICATION, Recipe, finetune_by, with_rate
from models.recipes.import_settings import ONE_OUTPUT_TASKS, ImportSettings
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


def import_model(source: str, output: Path, settings: ImportSettings) -> None:
    """Read a checkpoint of any kind and write it in Attendant's format."""
    check_replaceable(output)
    head_task = settings.task if settings.task in ONE_OUTPUT_TASKS else None
    checkpoint = load_checkpoint(source, settings.context, head_task)
    if settings.adapter is not None:
        checkpoint = merged(read_peft(Path(settings.adapter)), checkpoint)
    if settings.yes_no is not None:
        checkpoint = as_yes_no_scorer(checkpoint, settings.yes_no)
    checkpoint = imported(checkpoint, source, settings)
    if settings.pair_template is not None:
        template = read_template(Path(settings.pair_template))
        try:
            checkpoint = with_pair_template(checkpoint, template)
        except SettingError as error:  # which has the text, not the name of its file
            raise SettingError(error.field, settings.pair_template, error.limit) from error
    if settings.origin is not None:
        checkpoint = replace(checkpoint, origin=settings.origin)
    save_checkpoint(checkpoint, output)
    Console().print(summary(checkpoint, output))


def imported(checkpoint: Checkpoint, source: str, settings: ImportSettings) -> Checkpoint:
    """The checkpoint of `source` for the task of the settings.

    Raises SettingError for a task that its network cannot do, and for settings of embedders
    beside another task.
    """
    task = checkpoint.task if settings.task == "auto" else settings.task
    is_decoder = isinstance(checkpoint.model, GPT | Llama | DecoderReader)
    if task == "embedding" and is_decoder:
        return as_decoder_embedder(checkpoint, settings)
    if "text-generation" in (task, checkpoint.task) and task != checkpoint.task:
        others = "auto, embedding" if is_decoder else "auto"
        limit = f"{others} or {checkpoint.task}, which is the task of {source}"
        raise SettingError("task", settings.task, limit)
    if task == "embedding" and isinstance(checkpoint.model, ThreeWayEmbedder | TermEmbedder):
        return as_trained(checkpoint, source, settings)
    if task == "embedding":
        return as_embedder(checkpoint, settings)
    for field in ("pooling", "layers", "normalize", "dimensions", "layer_norm"):
        if (value := getattr(settings, field)) is not None:
            limit = f"left out: it is for embedders, and the task of {source} is {checkpoint.task}"
            raise SettingError(field, value, limit)
    if checkpoint.task != task:
        limit = f"auto or embedding: {source} has no head for {task}, train one"
        raise SettingError("task", settings.task, limit)
    return checkpoint


def as_decoder_embedder(checkpoint: Checkpoint, settings: ImportSettings) -> Checkpoint:
    """The decoder as an embedder; what is None stays as it was, or is the last token, and False."""
    model = checkpoint.model
    assert isinstance(model, GPT | Llama | DecoderReader), "the caller checked that it is a decoder"
    decoder = model.decoder if isinstance(model, DecoderReader) else without_output(model)
    was = model if isinstance(model, DecoderEmbedder) else DecoderEmbedder(decoder)
    if settings.layers not in (None, "last"):
        limit = "last, or left out: a decoder's last layer is the one that has a norm"
        raise SettingError("layers", settings.layers, limit)
    embedder = DecoderEmbedder(
        decoder,
        was.pooling if settings.pooling is None else settings.pooling,
        was.normalize if settings.normalize is None else settings.normalize,
        _maps_of(was, settings),
    ).eval()
    return replace(_with_embedder(checkpoint, embedder, settings), chat={}, sampling={})


def as_trained(checkpoint: Checkpoint, source: str, settings: ImportSettings) -> Checkpoint:
    """An embedder as BGE-M3 or SPLADE with its heads; only the first has widths to cut to.

    Raises `SettingError` for any other setting of embedders.
    """
    model = checkpoint.model
    assert isinstance(model, ThreeWayEmbedder | TermEmbedder), "the caller checked it"
    has_vector = isinstance(model, ThreeWayEmbedder)
    fields = ("pooling", "layers", "normalize", "layer_norm")
    for field in fields if has_vector else (*fields, "dimensions"):
        if (value := getattr(settings, field)) is not None:
            what = "three kinds of answers" if has_vector else "weights of words"
            limit = f"left out: {source} has {what}, which are computed as they were trained"
            raise SettingError(field, value, limit)
    use = checkpoint.embedder
    if settings.dimensions is not None:
        use = use.cut_to(parse_dimensions(settings.dimensions, model.embedding_size))
    return replace(checkpoint, embedder=use.within(model.embedding_size))


def as_embedder(checkpoint: Checkpoint, settings: ImportSettings) -> Checkpoint:
    """The encoder as an embedder; what is None stays as it was, or is mean, last and False."""
    model = checkpoint.encoder_model
    was = model if isinstance(model, TextEmbedder) else TextEmbedder(model.encoder)
    embedder = TextEmbedder(
        model.encoder,
        was.pooling if settings.pooling is None else settings.pooling,
        was.layers if settings.layers is None else settings.layers,
        was.normalize if settings.normalize is None else settings.normalize,
        _maps_of(was, settings),
    )
    return _with_embedder(checkpoint, embedder, settings)


def _maps_of(was: TextEmbedder | DecoderEmbedder, settings: ImportSettings) -> VectorMaps:
    if not settings.layer_norm:
        return was.maps
    return was.maps.then(VectorNorm(was.embedding_size, has_weights=False))


def _with_embedder(
    checkpoint: Checkpoint, embedder: TextEmbedder | DecoderEmbedder, settings: ImportSettings
) -> Checkpoint:
    use = checkpoint.embedder
    if settings.dimensions is not None:
        use = use.cut_to(parse_dimensions(settings.dimensions, embedder.embedding_size))
    use = use.within(embedder.embedding_size)
    return replace(
        checkpoint, model=embedder, task="embedding", labels=(), metrics={}, embedder=use
    )
