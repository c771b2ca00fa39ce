"""Show on a terminal how training goes: a bar with rate, loss and time left, a line per epoch.

Knows nothing about training; it is a Listener of `models/trainer.py`. Where the output is no
terminal, rich draws no bar and the lines per epoch remain.
"""

from types import TracebackType
from typing import Self

from rich.console import Console
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

from models.training_state import EpochRecord

SMOOTHING = 0.9  # of the loss shown: about the last ten steps


class RateColumn(ProgressColumn):
    """Steps per second, once known."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} steps/s")


class ProgressBar:
    """A context that draws the bar; leaving it by an error leaves the terminal in order."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._loss: float | None = None
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            RateColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("time left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None, loss="-")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def started(self, total_steps: int, done_steps: int) -> None:
        if done_steps:
            self._console.print(f"continuing after step {done_steps} of {total_steps}")
        self._bar.update(self._task, total=total_steps, completed=done_steps)

    def stepped(self, loss: float) -> None:
        known = self._loss if self._loss is not None else loss
        self._loss = SMOOTHING * known + (1.0 - SMOOTHING) * loss
        self._bar.update(self._task, advance=1, loss=f"{self._loss:.4f}")

    def evaluated(self, record: EpochRecord) -> None:
        self._console.print(
            f"epoch {record.epoch}: training loss {record.train_loss:.4f}, "
            f"validation loss {record.validation_loss:.4f}, "
            f"accuracy {record.accuracy:.2%}, macro F1 {record.macro_f1:.4f}"
        )
