"""The training loop: epochs of steps, each epoch judged on the validation rows.

Knows nothing about texts, files of reports or terminals.

The one idea: all that a run depends on is the settings, the data and the state that is saved
between two steps (weights, optimizer, random state, losses so far). Which rows come next follows
from the number of steps done, so a resumed run repeats an uninterrupted one bit for bit.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.batches import LabelledRows, Rows, epoch_batches
from models.errors import TrainingInterruptedError
from models.evaluation import Evaluation, evaluate
from models.optimizer import build_optimizer, learning_rate_at, uses_bfloat16
from models.settings import TrainingSettings
from models.training_state import (
    EpochRecord,
    Progress,
    RunIdentity,
    RunState,
    copy_weights,
)

SAVE_INTERVAL_S = 300.0  # the most work that a crash may lose; an epoch's end saves too


class Listener(Protocol):
    """Hears how training goes."""

    def started(self, total_steps: int, done_steps: int) -> None: ...

    def stepped(self, loss: float) -> None: ...

    def evaluated(self, record: EpochRecord) -> None: ...


class SilentListener:
    """Hears nothing: the default."""

    def started(self, total_steps: int, done_steps: int) -> None:
        pass

    def stepped(self, loss: float) -> None:
        pass

    def evaluated(self, record: EpochRecord) -> None:
        pass


class Judgement(Protocol):
    """How a model did on the rows that it was judged by."""

    @property
    def loss(self) -> float: ...

    def scores(self) -> dict[str, float]:
        """The task's figures by name, each better the higher it is."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """All that a report should tell."""
        ...


R = TypeVar("R", bound=Rows)
J = TypeVar("J", bound=Judgement)


@dataclass(frozen=True, slots=True)
class Objective(Generic[R, J]):
    """What a task wants: all in which training differs from task to task.

    `loss` is of a batch: of the network's float32 outputs and the targets. The best epoch has the
    highest `score`, or without one the lowest validation loss.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    judge: Callable[[nn.Module, R], J]
    score: str = ""


def classification(labels: Sequence[str]) -> Objective[LabelledRows, Evaluation]:
    """The right one of some labels for each row."""
    return Objective(F.cross_entropy, partial(evaluate, labels=labels))


class Trainer(Generic[R, J]):
    """One run over tokenized rows.

    Mutable, and all of it in the saved state: the model, the optimizer, `progress`, the best
    epoch's weights and torch's random state.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        train: R,
        validation: R,
        objective: Objective[R, J],
        settings: TrainingSettings,
        identity: RunIdentity,
        listener: Listener,
        frozen: nn.Module | None = None,  # a part of the model that does not learn
    ) -> None:
        self.progress = Progress()
        self.bfloat16 = uses_bfloat16(settings.precision)
        self._model = model
        self._train = train
        self._validation = validation
        self._objective = objective
        self._settings = settings
        self._listener = listener
        self._frozen = frozen
        self._model.requires_grad_(True)
        if frozen is not None:
            frozen.requires_grad_(False)
        self._optimizer = build_optimizer(model, settings)
        self._state = RunState(identity, model, self._optimizer)
        self._steps_per_epoch = -(-len(train) // settings.batch_size)
        self._total_steps = self._steps_per_epoch * settings.epochs

    def run(self, state_file: Path | None, should_stop: Callable[[], bool]) -> J:
        """Train to the end, leave the best epoch's weights in the model and judge them."""
        self._listener.started(self._total_steps, self._num_steps)
        while not self._is_finished():
            self._run_epoch(state_file, should_stop)
            self._judge_epoch()
            self._save(state_file)
        self._model.load_state_dict(self._state.best_weights)
        self._model.requires_grad_(True).eval()
        return self._objective.judge(self._model, self._validation)

    def restore(self, state_file: Path) -> None:
        """Continue from the file; raise CheckpointError if it belongs to another run."""
        self.progress = Progress.from_dict(self._state.restore(state_file))

    @property
    def _num_steps(self) -> int:
        return len(self.progress.step_losses)

    def _is_finished(self) -> bool:
        done, best = len(self.progress.epochs), self.progress.best_epoch
        return done >= self._settings.epochs or done - best >= self._settings.patience

    def _run_epoch(self, state_file: Path | None, should_stop: Callable[[], bool]) -> None:
        """Do what remains of the epoch under way, saving now and then."""
        epoch = len(self.progress.epochs)
        lengths, settings = self._train.lengths(), self._settings
        batches = epoch_batches(lengths, settings.batch_size, settings.seed, epoch)
        self._model.train()
        if self._frozen is not None:
            self._frozen.eval()  # what does not learn needs no dropout
        saved_s = time.monotonic()
        for batch in batches[self._num_steps - epoch * self._steps_per_epoch :]:
            started_s = time.monotonic()
            self.progress.step_losses.append(self._step(*self._train.batch(batch)))
            self._listener.stepped(self.progress.step_losses[-1])
            self.progress.seconds += time.monotonic() - started_s
            if should_stop():
                self._save(state_file)
                raise TrainingInterruptedError(f"after step {self._num_steps}, epoch {epoch + 1}")
            if time.monotonic() - saved_s > SAVE_INTERVAL_S:
                self._save(state_file)
                saved_s = time.monotonic()

    def _step(self, *batch: Tensor) -> float:
        """Learn from one batch and return its loss."""
        *inputs, targets = batch
        rate = learning_rate_at(self._num_steps, self._total_steps, self._settings)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bfloat16):
            outputs = self._model(*inputs)
        loss = self._objective.loss(outputs.float(), targets)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # PyTorch declares no types here
        nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.clip_norm)
        self._optimizer.step()
        return loss.item()

    def _judge_epoch(self) -> None:
        progress = self.progress
        found = self._objective.judge(self._model, self._validation)
        losses = progress.step_losses[-self._steps_per_epoch :]
        record = EpochRecord(
            epoch=len(progress.epochs) + 1,
            train_loss=sum(losses) / len(losses),
            validation_loss=found.loss,
            scores=found.scores(),
        )
        if progress.best is None or record.is_better_than(progress.best, self._objective.score):
            progress.best_epoch = record.epoch
            self._state.best_weights = copy_weights(self._model.state_dict())
        progress.epochs.append(record)
        self._listener.evaluated(record)

    def _save(self, state_file: Path | None) -> None:
        if state_file is not None:
            self._state.save(state_file, self.progress)
