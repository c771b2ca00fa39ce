"""The run of `attendant pretrain`, after its arguments are parsed.

Knows nothing about flags or exit codes (`commands/train/train.py` does). This is where files,
training and the terminal meet; it imports PyTorch, so the command line imports it only when it
runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from tokenizers import Tokenizer

from commands.train.pretrain_reports import pretrain_reports_of, tokens_per_s
from commands.train.progress import RateColumn, TrainingBar, spoken, step_line
from commands.train.running import run_training, save_trained, summary
from models.checkpoints.checkpoint import Checkpoint, check_replaceable, load_checkpoint
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.data.corpus import Corpus, read_corpus
from models.data.tokenizer import TOKENIZER_FILE, load_tokenizer, read_tokenizer
from models.errors import CheckpointError, SettingError
from models.networks.kinds import kind_of
from models.recipes.findings import remark_on_falling_loss
from models.recipes.kinds import PretrainKind
from models.recipes.pretrain import Pretraining, pretrain
from models.training.pretrain_settings import PretrainSettings

CONTEXT = "context"
SIZES = ("form", "num_layers", "hidden_size", "num_heads", CONTEXT)  # settings that some kinds have


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """Plain text; without a validation file, a part of the corpus is held out."""

    corpus: Sequence[Path]
    validation: Path | None = None
    tokenizer: Path | None = None  # None: one is trained
    start: str | None = None  # a checkpoint to continue training from; None: fresh weights


def pretrain_kind(
    kind: PretrainKind,
    files: CorpusFiles,
    output: Path,
    settings: PretrainSettings,
    *,
    resume: bool,
) -> None:
    """Train a model of a kind and write checkpoint and reports to `output`."""
    check_replaceable(output)  # now, rather than after the training
    corpus = read_corpus(
        files.corpus, files.validation, settings.validation_fraction, settings.seed
    )
    pretraining = kind.load()
    start = start_of(kind, files, settings)
    if start is None:
        with Console(stderr=True).status("training the tokenizer"):
            tokenizer = tokenizer_for(files.tokenizer, pretraining, corpus, settings)
    else:
        tokenizer = start.tokenizer
    rate = RateColumn("windows", settings.windows_per_step)
    pretrained = run_training(
        lambda session: pretrain(pretraining, corpus, tokenizer, settings, session, start),
        TrainingBar(rate, step_line),
        output,
        resume=resume,
    )
    reports = pretrain_reports_of(pretrained, corpus, settings)
    save_trained(pretrained.checkpoint, output, reports, files.start or "")
    remark_on_falling_loss(pretrained.progress, "--steps")
    best = pretrained.progress.best
    assert best is not None, "the last step is measured"
    table = summary(pretrained.checkpoint, output)
    table.add_row("best step", f"{best.step} of {settings.steps}")
    table.add_row("validation loss", f"{best.validation_loss:.3f}")
    for name, value in best.figures.items():
        table.add_row(f"validation {spoken(name)}", f"{value:.3f}")
    table.add_row("speed", f"{tokens_per_s(pretrained, settings):.0f} tokens/s")
    Console().print(table)


def start_of(
    kind: PretrainKind, files: CorpusFiles, settings: PretrainSettings
) -> Checkpoint | None:
    """The checkpoint to continue from, None for fresh weights.

    Raises SettingError for a setting that the checkpoint decides, and CheckpointError for a
    checkpoint of another kind.
    """
    if files.start is None:
        return None
    given = {"tokenizer": files.tokenizer}
    given |= {name: getattr(settings, name, None) for name in SIZES}
    if kind.shortens:
        del given[CONTEXT]
    for name, value in given.items():
        if value is not None:
            raise SettingError(name, value, f"left out: {files.start} has its own")
    start = load_checkpoint(files.start)
    found = kind_of(start.model).name
    if found != kind.network:
        raise CheckpointError(
            f"{files.start} holds the network {found}, but must hold {kind.network}"
        )
    return start


def tokenizer_for(
    given: Path | None, pretraining: Pretraining, corpus: Corpus, settings: PretrainSettings
) -> Tokenizer:
    """A tokenizer from a folder or a tokenizer.json, else trained on the model's texts."""
    if given is None:
        return pretraining.train_tokenizer(corpus.train, settings)
    if given.is_dir():
        is_read = (given / TOKENIZER_FILE).is_file()
        return load_tokenizer(given) if is_read else load_foreign_tokenizer(given)
    return read_tokenizer(given)
