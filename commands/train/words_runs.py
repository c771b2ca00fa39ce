"""The runs of `attendant words`, after their arguments are parsed.

Knows nothing about flags or exit codes (`commands/train/words.py` does); imports PyTorch.
"""

import re
import time
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from commands.train.progress import RateColumn, TrainingBar, spoken
from commands.train.reports import json_of, png_of
from commands.train.running import summary
from models.checkpoints.checkpoint import (
    Checkpoint,
    check_replaceable,
    load_checkpoint,
    save_checkpoint,
)
from models.data.corpus import TextFile, read_text_file
from models.errors import CheckpointError
from models.networks.word_vectors import WordVectors
from models.recipes.neighbours import Neighbour, WordSpace
from models.recipes.skip_gram import TrainedWords, space_of, train_words
from models.recipes.word_settings import WordSettings

PARAGRAPHS = re.compile(r"\n\s*\n")


def train(corpus: Sequence[Path], output: Path, settings: WordSettings) -> None:
    """Train word vectors and write checkpoint and reports to `output`."""
    check_replaceable(output)  # now, rather than after the training
    files = [read_text_file(path) for path in corpus]
    origin = f"skip-gram on {', '.join(file.name for file in files)}"
    started_s = time.monotonic()
    with TrainingBar(RateColumn("words")) as bar:
        trained = train_words(paragraphs(files), settings, origin, bar)
    seconds = time.monotonic() - started_s
    reports = {
        "training.json": _training_json(trained, files, settings, seconds),
        "loss.png": _loss_picture(trained),
    }
    save_checkpoint(trained.checkpoint, output, reports)
    table = summary(trained.checkpoint, output)
    table.add_row("words", f"{trained.checkpoint.config.vocab_size} different words")
    table.add_row("corpus", f"{trained.num_words} words")
    table.add_row("loss of a pair", f"{trained.epoch_losses[-1]:.3f}")
    for name, value in trained.evaluation.to_dict().items():
        table.add_row(spoken(name), f"{value:g}")
    table.add_row("training time", f"{seconds:.1f} s")
    Console().print(table)


def nearest(source: str, words: Sequence[str], count: int) -> None:
    """Print the words nearest to each."""
    space = _read(source)
    table = Table("word", "nearest")
    for word in words:
        table.add_row(word, _listed(space.nearest(word, count)))
    Console().print(table)


def analogy(source: str, first: str, minus: str, plus: str, count: int) -> None:
    """Print the words that are to `plus` as `first` is to `minus`."""
    table = Table("question", "nearest")
    found = _read(source).analogy(first, minus, plus, count)
    table.add_row(f"{first} - {minus} + {plus}", _listed(found))
    Console().print(table)


def paragraphs(files: Sequence[TextFile]) -> list[str]:
    """The paragraphs of the documents, which blank lines separate: no window crosses one."""
    return [
        paragraph
        for file in files
        for document in file.documents
        for paragraph in PARAGRAPHS.split(document)
        if paragraph.strip()
    ]


def _read(source: str) -> WordSpace:
    checkpoint: Checkpoint = load_checkpoint(source)
    if not isinstance(checkpoint.model, WordVectors):
        raise CheckpointError(
            f"the task of {source} is {checkpoint.task}, but this needs word vectors"
        )
    return space_of(checkpoint)


def _listed(found: Sequence[Neighbour]) -> str:
    return ", ".join(f"{neighbour.word} {neighbour.cosine:.3f}" for neighbour in found)


def _training_json(
    trained: TrainedWords, files: Sequence[TextFile], settings: WordSettings, seconds: float
) -> bytes:
    values = {
        "data": {"files": [file.to_dict() for file in files], "words": trained.num_words},
        "settings": settings.to_dict(),
        "evaluation": trained.evaluation.to_dict(),
        "epoch_losses": trained.epoch_losses,
        "training_s": round(seconds, 1),
    }
    return json_of(values)


def _loss_picture(trained: TrainedWords) -> bytes:
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(trained.epoch_losses) + 1), trained.epoch_losses, "o-")
    axes.set(xlabel="epoch", ylabel="loss of a pair, nats")
    return png_of(figure)
