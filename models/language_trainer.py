"""The training loop of a language model: steps, each of some batches of windows, and measurements.

Knows nothing about texts, files of reports or terminals; what is learnt is the objective's.

The one idea is the same as in `models/trainer.py`: which windows come next follows from the number
of steps done, so with the saved state a resumed run repeats an uninterrupted one bit for bit.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from models.errors import TrainingInterruptedError
from models.optimizer import build_optimizer, cosine_rate_at, uses_bfloat16
from models.pretrain_settings import PretrainSettings
from models.training_state import (
    Measurement,
    PretrainProgress,
    RunIdentity,
    RunState,
    copy_weights,
)

SAVE_INTERVAL_S = 300.0  # the most work that a crash may lose


@dataclass(frozen=True, slots=True)
class Judgement:
    """How a model does on held-out text: the loss decides which weights are the best."""

    loss: float
    figures: dict[str, float]
    sample: str = ""


class Objective(Protocol):
    """What a model learns from, and what it is judged by."""

    @property
    def num_train_tokens(self) -> int:
        """Of the corpus, not of all epochs."""
        ...

    @property
    def num_validation_tokens(self) -> int: ...

    @property
    def tokens_per_window(self) -> float:
        """About: padding, if there is any, is no token."""
        ...

    def digest(self) -> str:
        """Of everything that is learnt from and measured on."""
        ...

    def loss(self, model: nn.Module, first: int, count: int) -> Tensor:
        """Mean loss of training windows `first`, `first + 1`, ...: functions of their numbers."""
        ...

    def judge(self, model: nn.Module) -> Judgement:
        """The same text each time; the model is in evaluation mode."""
        ...


class PretrainListener(Protocol):
    """Hears how training goes."""

    def started(self, total_steps: int, done_steps: int) -> None: ...

    def stepped(self, loss: float) -> None: ...

    def measured(self, measurement: Measurement) -> None: ...


class SilentPretrainListener:
    """Hears nothing: the default."""

    def started(self, total_steps: int, done_steps: int) -> None:
        pass

    def stepped(self, loss: float) -> None:
        pass

    def measured(self, measurement: Measurement) -> None:
        pass


class LanguageTrainer:
    """One run over windows of text.

    Mutable, and all of it in the saved state: the model, the optimizer, `progress`, the best
    measurement's weights and torch's random state.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        objective: Objective,
        settings: PretrainSettings,
        identity: RunIdentity,
        listener: PretrainListener,
    ) -> None:
        self.progress = PretrainProgress()
        self.bfloat16 = uses_bfloat16(settings.precision)
        self._model = model
        self._objective = objective
        self._settings = settings
        self._listener = listener
        betas = (settings.beta1, settings.beta2)
        self._optimizer = build_optimizer(model, settings, betas)
        self._state = RunState(identity, model, self._optimizer)

    def run(self, state_file: Path | None, should_stop: Callable[[], bool]) -> None:
        """Train to the end, and leave the best weights that were measured in the model."""
        settings = self._settings
        self._listener.started(settings.steps, self.num_steps)
        self._model.train()
        saved_s = time.monotonic()
        while self.num_steps < settings.steps:
            started_s = time.monotonic()
            self.progress.step_losses.append(self._step())
            self.progress.seconds += time.monotonic() - started_s
            self._listener.stepped(self.progress.step_losses[-1])
            if self.num_steps % settings.evaluate_every == 0 or self.num_steps == settings.steps:
                self._measure()
            if should_stop():
                self._save(state_file)
                raise TrainingInterruptedError(f"after step {self.num_steps}")
            if time.monotonic() - saved_s > SAVE_INTERVAL_S:
                self._save(state_file)
                saved_s = time.monotonic()
        self._model.load_state_dict(self._state.best_weights)
        self._model.eval()

    def restore(self, state_file: Path) -> None:
        """Continue from the file; raise CheckpointError if it belongs to another run."""
        self.progress = PretrainProgress.from_dict(self._state.restore(state_file))

    @property
    def num_steps(self) -> int:
        return len(self.progress.step_losses)

    def _step(self) -> float:
        """Learn from the next batches and return their mean loss."""
        settings = self._settings
        rate = cosine_rate_at(self.num_steps, settings.steps, settings)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad()
        first = self.num_steps * settings.windows_per_step
        total = 0.0
        for start in range(first, first + settings.windows_per_step, settings.batch_size):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
                loss = self._objective.loss(self._model, start, settings.batch_size)
            # All batches have as many windows, so the mean of their gradients is the whole's.
            (loss / settings.accumulation).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        nn.utils.clip_grad_norm_(self._model.parameters(), settings.clip_norm)
        self._optimizer.step()
        return total / settings.accumulation

    def _measure(self) -> None:
        progress = self.progress
        self._model.eval()
        with torch.inference_mode():
            judged = self._objective.judge(self._model)
        self._model.train()
        before = progress.measurements[-1].step if progress.measurements else 0
        losses = progress.step_losses[before:]
        measurement = Measurement(
            step=self.num_steps,
            train_loss=sum(losses) / len(losses),
            validation_loss=judged.loss,
            figures=judged.figures,
            sample=judged.sample,
        )
        progress.measurements.append(measurement)
        if progress.best is measurement:
            self._state.best_weights = copy_weights(self._model.state_dict())
        self._listener.measured(measurement)

    def _save(self, state_file: Path | None) -> None:
        if state_file is not None:
            self._state.save(state_file, self.progress)
