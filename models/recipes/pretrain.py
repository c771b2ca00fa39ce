"""Train a language model, from nothing or on: from a corpus and settings to a checkpoint.

Knows nothing about terminals, signals or report files. The loop itself is in
`models/training/trainer.py`; what a kind of model is made of and learns is its `Pretraining`.
"""

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from tokenizers import Tokenizer
from torch import Tensor, nn

from models.checkpoints.checkpoint import Checkpoint
from models.data.corpus import Corpus
from models.errors import SettingError
from models.networks.encoder import EncoderConfig
from models.networks.gpt import GPTConfig
from models.networks.kinds import kind_of
from models.recipes.lora import adapted_decoder
from models.training.optimizer import build_optimizer, cosine_rate_at, uses_bfloat16
from models.training.pretrain_settings import (
    DecoderSettings,
    PretrainSettings,
    TransformerSettings,
)
from models.training.state import FRESH, Progress, RunIdentity
from models.training.trainer import Judgement, Schedule, Session, Trainer, seeded

Config = TypeVar("Config", GPTConfig, EncoderConfig)


class LanguageObjective(Protocol):
    """A language model's loss on windows of text, and its measurement."""

    @property
    def num_train_tokens(self) -> int:
        """The number of the corpus's tokens, not of all epochs."""
        ...

    @property
    def num_validation_tokens(self) -> int: ...

    @property
    def tokens_per_window(self) -> float:
        """About: padding, if there is any, is no token."""
        ...

    def digest(self) -> str:
        """A digest of all data for training and measuring."""
        ...

    def loss(self, model: nn.Module, first: int, count: int) -> Tensor:
        """Mean loss of training windows `first`, `first + 1`, ...: functions of their numbers."""
        ...

    def judge(self, model: nn.Module) -> Judgement:
        """Judgement on the same text each time; the model is in evaluation mode."""
        ...


@dataclass(frozen=True, slots=True)
class WindowObjective:
    """The objective of a language model on windows of text; a step learns from some batches."""

    language: LanguageObjective
    settings: PretrainSettings

    def batches(self, step: int) -> range:
        """The first window of each."""
        first = step * self.settings.windows_per_step
        return range(first, first + self.settings.windows_per_step, self.settings.batch_size)

    def loss(self, model: nn.Module, batch: int) -> Tensor:
        return self.language.loss(model, batch, self.settings.batch_size)

    def judge(self, model: nn.Module) -> Judgement:
        return self.language.judge(model)


@dataclass(frozen=True, slots=True)
class Pretraining:
    """The recipe of one kind of model, with its own settings."""

    train_tokenizer: Callable[[Sequence[str], Any], Tokenizer]  # of documents, settings
    config_of: Callable[[Any, Tokenizer], Any]  # of settings
    build: Callable[[Any, Tokenizer], nn.Module]  # of a config: fresh weights, by torch's state
    objective: Callable[[Corpus, Tokenizer, Any, Any], LanguageObjective]  # of config and settings
    is_byte_level: bool = False  # how a tokenizer's folder without a tokenizer.json is read
    completed: Callable[[nn.Module], nn.Module] = lambda model: model  # with all it learns with


@dataclass(frozen=True, slots=True)
class Pretrained:
    """The best weights' model, and how the run went."""

    checkpoint: Checkpoint
    progress: Progress
    objective: LanguageObjective
    bfloat16: bool


def pretrain(
    pretraining: Pretraining,
    corpus: Corpus,
    tokenizer: Tokenizer,
    settings: PretrainSettings,
    session: Session | None = None,
    start: Checkpoint | None = None,
) -> Pretrained:
    """Train a fresh model, or a copy of the start's; the global random state stays as it was.

    The tokenizer must be the start's. Raises TrainingInterruptedError and CheckpointError, see
    `Session`.
    """
    config = start.config if start else pretraining.config_of(settings, tokenizer)
    objective = pretraining.objective(corpus, tokenizer, config, settings)
    data = hashlib.sha256((tokenizer.to_str() + objective.digest()).encode()).hexdigest()
    identity = RunIdentity(settings.to_dict(), start.origin if start else FRESH, data)
    schedule = Schedule(
        steps=settings.steps,
        measure_every=settings.evaluate_every,
        rate_at=lambda step: cosine_rate_at(step, settings.steps, settings),
        clip_norm=settings.clip_norm,
        bfloat16=uses_bfloat16(settings.precision),
    )
    with seeded(settings.seed):
        if start is None:
            model = pretraining.build(config, tokenizer)
        else:
            model = pretraining.completed(copy.deepcopy(start.model))
        if isinstance(settings, DecoderSettings) and settings.lora:
            if start is None:
                limit = "left out without --from: an adapter is of a base that knows something"
                raise SettingError("lora", True, limit)
            adapted_decoder(model, start.source, settings)
        optimizer = build_optimizer(model, settings, (settings.beta1, settings.beta2))
        trainer = Trainer(
            model, optimizer, WindowObjective(objective, settings), schedule, identity
        )
        progress = trainer.run(session or Session())
    best = progress.best
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
        source=start.source if start else {},
    )
    return Pretrained(checkpoint, progress, objective, schedule.bfloat16)


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
    """A digest of tensors, one after the other."""
    digest = hashlib.sha256()
    for stream in streams:
        digest.update(stream.numpy().tobytes())
        digest.update(b"\x00")
    return digest.hexdigest()
