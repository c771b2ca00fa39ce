"""Train a language model, from nothing or on: from a corpus and settings to a checkpoint.

Knows nothing about terminals, signals or report files: a listener hears what happens and
`should_stop` is asked after every step. The loop itself is in `models/language_trainer.py`; what a
kind of model is made of and learns is its `Pretraining`.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from models.checkpoint import Checkpoint
from models.corpus import Corpus
from models.encoder import EncoderConfig
from models.gpt import GPTConfig
from models.kinds import kind_of
from models.language_trainer import (
    LanguageTrainer,
    Objective,
    PretrainListener,
    SilentPretrainListener,
)
from models.pretrain_settings import PretrainSettings, TransformerSettings
from models.training_state import PretrainProgress, RunIdentity

FRESH = "fresh weights"
Config = TypeVar("Config", GPTConfig, EncoderConfig)


@dataclass(frozen=True, slots=True)
class Pretraining:
    """How one kind of model comes about, by its own settings."""

    train_tokenizer: Callable[[Sequence[str], Any], Tokenizer]  # of documents, settings
    config_of: Callable[[Any, Tokenizer], Any]  # of settings
    build: Callable[[Any, Tokenizer], nn.Module]  # of a config: fresh weights, by torch's state
    objective: Callable[[Corpus, Tokenizer, Any, Any], Objective]  # of config and settings
    is_byte_level: bool = False  # how a tokenizer's folder without a tokenizer.json is read
    completed: Callable[[nn.Module], nn.Module] = lambda model: model  # with all it learns with


@dataclass(frozen=True, slots=True)
class Pretrained:
    """The best weights' model, and how the run went."""

    checkpoint: Checkpoint
    progress: PretrainProgress
    objective: Objective
    bfloat16: bool


def pretrain(
    pretraining: Pretraining,
    corpus: Corpus,
    tokenizer: Tokenizer,
    settings: PretrainSettings,
    *,
    start: Checkpoint | None = None,
    state_file: Path | None = None,
    resume: bool = True,
    listener: PretrainListener | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Pretrained:
    """Train a fresh model, or a copy of the start's; the global random state stays as it was.

    The tokenizer must be the start's. With a `state_file` the run can be stopped and continued:
    raises TrainingInterruptedError after saving once `should_stop` says so, and CheckpointError if
    the file belongs to another run.
    """
    config = start.config if start else pretraining.config_of(settings, tokenizer)
    objective = pretraining.objective(corpus, tokenizer, config, settings)
    data = hashlib.sha256((tokenizer.to_str() + objective.digest()).encode()).hexdigest()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        if start is None:
            model = pretraining.build(config, tokenizer)
        else:
            model = pretraining.completed(copy.deepcopy(start.model))
        trainer = LanguageTrainer(
            model=model,
            objective=objective,
            settings=settings,
            identity=RunIdentity(settings.to_dict(), start.origin if start else FRESH, data),
            listener=listener or SilentPretrainListener(),
        )
        if state_file is not None and resume and state_file.exists():
            trainer.restore(state_file)
        trainer.run(state_file, should_stop)
    best = trainer.progress.best
    assert best is not None, "the last step is measured"
    trained_on = f"trained on {', '.join(file.name for file in corpus.files)}"
    checkpoint = Checkpoint(
        model=model,
        task=kind_of(model).task,
        labels=(),
        tokenizer=tokenizer,
        max_tokens=config.max_positions,
        origin=f"{start.origin}, then {trained_on}" if start else trained_on,
        metrics={f"validation_{name}": value for name, value in best.figures.items()},
    )
    return Pretrained(checkpoint, trainer.progress, objective, trainer.bfloat16)


def with_sizes(
    preset: Config,
    settings: TransformerSettings,
    tokenizer: Tokenizer,
    **token_ids: Any,  # noqa: ANN401 - whole numbers, which mypy wants of every other field's type
) -> Config:
    """The size's configuration, with what the settings and the tokenizer give in its place."""
    hidden_size = settings.hidden_size or preset.hidden_size
    return replace(
        preset,
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=hidden_size,
        num_layers=settings.num_layers or preset.num_layers,
        num_heads=settings.num_heads or preset.num_heads,
        intermediate_size=4 * hidden_size,
        max_positions=settings.context or preset.max_positions,
        dropout=settings.dropout,
        **token_ids,
    )


def digest_of(*streams: Tensor) -> str:
    """Of tensors, one after the other."""
    digest = hashlib.sha256()
    for stream in streams:
        digest.update(stream.numpy().tobytes())
        digest.update(b"\x00")
    return digest.hexdigest()
