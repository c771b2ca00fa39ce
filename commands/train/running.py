"""Shared parts of commands that train: a run that a signal stops, and the summary at its end."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TypeVar

from rich.table import Table

from commands.train.progress import TrainingBar
from models.checkpoints.checkpoint import Checkpoint, save_checkpoint
from models.networks.heads import TextEmbedder
from models.networks.kinds import kind_of
from models.training.state import state_path
from models.training.trainer import Session

T = TypeVar("T")


def run_training(
    train: Callable[[Session], T], bar: TrainingBar, output: Path, *, resume: bool
) -> T:
    """The result of `train`, with a progress bar; the first signal stops it.

    Raises TrainingInterruptedError after the state was saved beside `output`.
    """
    with stop_requests() as should_stop, bar:
        return train(Session(state_path(output), resume, bar, should_stop))


def save_trained(checkpoint: Checkpoint, output: Path, reports: Mapping[str, bytes]) -> None:
    """Write the checkpoint and remove the state of the run, which is no longer needed."""
    save_checkpoint(checkpoint, output, reports)
    state_path(output).unlink(missing_ok=True)


def summary(checkpoint: Checkpoint, folder: Path) -> Table:
    model, config = checkpoint.model, checkpoint.config
    num_weights = sum(parameter.numel() for parameter in model.parameters())
    table = Table(title=str(folder), show_header=False)
    table.add_row("task", checkpoint.task)
    table.add_row("origin", checkpoint.origin)
    table.add_row(
        "network",
        f"{kind_of(model).name}, {config.num_layers} layers, {config.hidden_size} values per token",
    )
    table.add_row("weights", f"{num_weights / 1e6:.1f} million")
    table.add_row("longest text", f"{checkpoint.max_tokens} tokens")
    if checkpoint.task == "text-generation":
        table.add_row("chat template", "yes" if checkpoint.chat else "none")
    if checkpoint.sampling:
        own = ", ".join(f"{name} {value:g}" for name, value in checkpoint.sampling.items())
        table.add_row("own sampling", own)
    if checkpoint.labels:
        table.add_row("labels", ", ".join(checkpoint.labels))
    if isinstance(model, TextEmbedder):
        table.add_row("embedding", f"{model.embedding_size} values")
        table.add_row("pooling", f"{model.pooling} of {model.layers}")
        table.add_row("normalized", "yes" if model.normalize else "no")
    return table


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """A function that says whether SIGINT or SIGTERM came; a second signal acts as usual."""
    requested = False
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def request(_number: int, _frame: FrameType | None) -> None:
        nonlocal requested
        requested = True
        restore()

    for number in usual:
        signal.signal(number, request)
    try:
        yield lambda: requested
    finally:
        restore()
