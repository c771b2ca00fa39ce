"""The progress of training on a terminal: a bar with rate, loss and time left, and lines above.

Knows nothing about training. Where the output is no terminal, rich draws no bar and the lines per
epoch or measurement remain.
"""

from collections.abc import Callable
from typing import Self

from rich.console import Console
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from models.training.state import Measurement
from models.training.trainer import Listener

SMOOTHING = 0.9  # of the loss shown: about the last ten steps


class RateColumn(ProgressColumn):
    """The rate per second, once it is known, in steps or in items of a step."""

    def __init__(self, unit: str = "steps", per_step: int = 1) -> None:
        super().__init__()
        self._unit = unit
        self._per_step = per_step

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if speed is None:
            return Text("")
        digits = 1 if self._per_step == 1 else 0
        return Text(f"{speed * self._per_step:.{digits}f} {self._unit}/s")


def epoch_line(epoch: Measurement) -> str:
    """The line of an epoch whose figures are scores."""
    scores = ", ".join(f"{spoken(name)} {value:.4f}" for name, value in epoch.figures.items())
    return (
        f"epoch {epoch.number}: training loss {epoch.train_loss:.4f}, "
        f"validation loss {epoch.validation_loss:.4f}, {scores}"
    )


def pairs_line(epoch: Measurement) -> str:
    """The line of an epoch whose figures are accuracies."""
    symbols, exact = epoch.figures["symbols"], epoch.figures["exact"]
    return (
        f"epoch {epoch.number}: training loss {epoch.train_loss:.4f}, "
        f"test accuracy {symbols:.2%}, exact match {exact:.2%}"
    )


def step_line(measurement: Measurement) -> str:
    """The line of a measurement between two steps."""
    figures = (f"{spoken(name)} {value:.3f}" for name, value in measurement.figures.items())
    losses = (
        f"loss {measurement.train_loss:.4f}",
        f"validation loss {measurement.validation_loss:.4f}",
    )
    return f"step {measurement.step}: {', '.join((*losses, *figures))}"


def spoken(name: str) -> str:
    """The name of a figure with spaces between its words."""
    return name.replace("_", " ")


class TrainingBar(Listener):
    """A context that draws the bar; leaving it by an error leaves the terminal in order.

    `line` is what it prints of each measurement.
    """

    def __init__(
        self,
        rate: RateColumn | None = None,
        line: Callable[[Measurement], str] = epoch_line,
        console: Console | None = None,
    ) -> None:
        self._console = console or Console(stderr=True)
        self._line = line
        self._loss: float | None = None
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            rate or RateColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("time left"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=None, loss="-")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def started(self, total_steps: int, done_steps: int) -> None:
        if done_steps:
            self._console.print(f"training continues after step {done_steps} of {total_steps}")
        self._bar.update(self._task, total=total_steps, completed=done_steps)

    def stepped(self, loss: float, advance: int = 1) -> None:
        known = self._loss if self._loss is not None else loss
        self._loss = SMOOTHING * known + (1.0 - SMOOTHING) * loss
        self._bar.update(self._task, advance=advance, loss=f"{self._loss:.4f}")

    def measured(self, measurement: Measurement) -> None:
        self._console.print(self._line(measurement))
        if measurement.sample:
            self._console.print(Padding(Text(measurement.sample, style="dim"), (0, 4)))
