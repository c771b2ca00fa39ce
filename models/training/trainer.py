"""The training loop: steps, measurements, and a state from which a stopped run continues.

Knows nothing about texts, files of reports or terminals; what is learnt is the objective's.

The one idea: all that a run depends on is the settings, the data and the state that is saved
between two steps (weights, optimizer, random state, losses so far). Which batches come next
follows from the number of steps done, so a resumed run repeats an uninterrupted one bit for bit.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from models.errors import TrainingInterruptedError
from models.training.state import Measurement, Progress, RunIdentity, RunState, copy_weights

SAVE_INTERVAL_S = 300.0  # the most work that a crash may lose; a measurement saves too


@dataclass(frozen=True, slots=True)
class Judgement:
    """A measurement of a model on held-out data."""

    figures: dict[str, float]  # by name
    loss: float | None = None  # None where only figures are computed
    sample: str = ""  # of what the model says


class Objective(Protocol):
    """An objective: a model's training data, loss and measurement."""

    def batches(self, step: int) -> Sequence[Any]:
        """Keys of the batches, of equal size, that a step learns from."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Tensor:  # noqa: ANN401 - the objective's own
        """Mean loss of the batch with this key."""
        ...

    def judge(self, model: nn.Module) -> Judgement:
        """Judgement on the same data each time; the model is in evaluation mode."""
        ...


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of a run: its length, the size of its steps, and which weights are kept.

    The best measurement has the highest figure `score`, or without one the lowest loss.
    """

    steps: int
    measure_every: int  # steps; the last one is always measured
    rate_at: Callable[[int], float]  # the learning rate of each step, counted from 0
    clip_norm: float
    bfloat16: bool = False  # in the passes; weights stay float32
    steps_per_epoch: int | None = None  # where a message says the epoch too
    patience: int | None = None  # measurements without a better one, after which the run ends
    score: str = ""
    keeps_best: bool = True  # else the last weights


class Listener:
    """An observer of training that ignores all events; subclasses use them.

    A loss is of `advance` steps, where several are done at once.
    """

    def started(self, total_steps: int, done_steps: int) -> None:
        pass

    def stepped(self, loss: float, advance: int = 1) -> None:
        pass

    def measured(self, measurement: Measurement) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Session:
    """The hooks of a run for watching, stopping and continuing; all off by default.

    With a `state_file` a run raises TrainingInterruptedError after saving once `should_stop`
    returns true, and continues from the file unless `resume` is false.
    """

    state_file: Path | None = None
    resume: bool = True
    listener: Listener = field(default_factory=Listener)
    should_stop: Callable[[], bool] = lambda: False


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch's random state follows from the seed; outside it stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class Trainer:
    """One run.

    Mutable, and all of it in the saved state: the model, the optimizer, `progress`, the best
    measurement's weights and torch's random state.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        objective: Objective,
        schedule: Schedule,
        identity: RunIdentity,
        frozen: nn.Module | None = None,  # a part of the model that does not learn
    ) -> None:
        self.progress = Progress()
        self._model = model
        self._optimizer = optimizer
        self._objective = objective
        self._schedule = schedule
        self._frozen = frozen
        self._state = RunState(identity, model, optimizer)

    def run(self, session: Session) -> Progress:
        """Train to the end, and leave the weights that are kept in the model.

        Raises TrainingInterruptedError, and CheckpointError for the state of another run.
        """
        if session.state_file is not None and session.resume and session.state_file.exists():
            values = self._state.restore(session.state_file)
            self.progress = Progress.from_dict(values, self._schedule.measure_every)
        session.listener.started(self._schedule.steps, self._num_steps)
        self._start_learning()
        saved_s = time.monotonic()
        while True:
            if self._is_measurement_due():
                session.listener.measured(self._measure())
                self._save(session)
                saved_s = time.monotonic()
            if self._is_finished():
                break
            session.listener.stepped(self._timed_step())
            if session.should_stop():
                self._save(session)
                raise TrainingInterruptedError(self._place())
            if time.monotonic() - saved_s > SAVE_INTERVAL_S:
                self._save(session)
                saved_s = time.monotonic()
        if self._schedule.keeps_best:
            self._model.load_state_dict(self._state.best_weights)
        self._model.requires_grad_(True).eval()
        return self.progress

    @property
    def _num_steps(self) -> int:
        return len(self.progress.step_losses)

    def _is_measurement_due(self) -> bool:
        """Whether to measure, also in a state saved after a step and before its measurement."""
        steps, measurements = self._num_steps, self.progress.measurements
        if not steps or (measurements and measurements[-1].step == steps):
            return False
        return steps % self._schedule.measure_every == 0 or steps == self._schedule.steps

    def _is_finished(self) -> bool:
        progress, patience = self.progress, self._schedule.patience
        if patience is not None and len(progress.measurements) - progress.best_number >= patience:
            return True
        return self._num_steps >= self._schedule.steps

    def _place(self) -> str:
        steps, steps_per_epoch = self._num_steps, self._schedule.steps_per_epoch
        epoch = f", epoch {-(-steps // steps_per_epoch)}" if steps_per_epoch else ""
        return f"after step {steps}{epoch}"

    def _start_learning(self) -> None:
        self._model.train()
        if self._frozen is not None:
            self._frozen.eval()  # what does not learn needs no dropout

    def _timed_step(self) -> float:
        started_s, started_cpu_s = time.monotonic(), time.process_time()
        loss = self._step()
        self.progress.seconds += time.monotonic() - started_s
        self.progress.cpu_seconds += time.process_time() - started_cpu_s
        self.progress.step_losses.append(loss)
        return loss

    def _step(self) -> float:
        """Learn from the next batches and return their mean loss."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule.rate_at(self._num_steps)
        self._optimizer.zero_grad()
        batches = self._objective.batches(self._num_steps)
        total = 0.0
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=self._schedule.bfloat16):
                loss = self._objective.loss(self._model, batch)
            # All batches are of one size, so the mean of their gradients is the whole's.
            (loss / len(batches)).backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        nn.utils.clip_grad_norm_(self._model.parameters(), self._schedule.clip_norm)
        self._optimizer.step()
        return total / len(batches)

    def _measure(self) -> Measurement:
        progress = self.progress
        self._model.eval()
        with torch.inference_mode():
            judged = self._objective.judge(self._model)
        self._start_learning()
        before = progress.measurements[-1].step if progress.measurements else 0
        losses = progress.step_losses[before:]
        measurement = Measurement(
            number=len(progress.measurements) + 1,
            step=self._num_steps,
            train_loss=sum(losses) / len(losses),
            validation_loss=judged.loss,
            figures=judged.figures,
            sample=judged.sample,
        )
        if progress.best is None or measurement.is_better_than(progress.best, self._schedule.score):
            progress.best_number = measurement.number
            if self._schedule.keeps_best:
                self._state.best_weights = copy_weights(self._model.state_dict())
        progress.measurements.append(measurement)
        return measurement

    def _save(self, session: Session) -> None:
        if session.state_file is not None:
            self._state.save(session.state_file, self.progress)
