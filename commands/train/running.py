"""Shared parts of commands that train: a run that a signal stops, and the summary at its end."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from commands.train.progress import TrainingBar
from models.checkpoints.adapter_files import save_adapter
from models.checkpoints.checkpoint import Checkpoint, save_checkpoint
from models.networks.kinds import kind_of
from models.networks.lora import adapted_maps
from models.training.state import state_path
from models.training.trainer import Session

T = TypeVar("T")
SCORED = ("text-classification", "pair-scoring")


def run_training(
    train: Callable[[Session], T], bar: TrainingBar, output: Path, *, resume: bool
) -> T:
    """The result of `train`, with a progress bar; the first signal stops it.

    Raises TrainingInterruptedError after the state was saved beside `output`.
    """
    with stop_requests() as should_stop, bar:
        return train(Session(state_path(output), resume, bar, should_stop))


def save_trained(
    checkpoint: Checkpoint, output: Path, reports: Mapping[str, bytes], base: str = ""
) -> None:
    """Write the checkpoint, or what its adapters have learnt beside `base`.

    The state of the run is removed, as it is no longer needed. No comparison with the folder of
    the start is kept, as the weights are others.
    """
    checkpoint = replace(checkpoint, certificate={})
    if adapted_maps(checkpoint.model):
        save_adapter(checkpoint, base, output, reports)
    else:
        save_checkpoint(checkpoint, output, reports)
    state_path(output).unlink(missing_ok=True)


def summary(checkpoint: Checkpoint, folder: Path) -> Table:
    model, config = checkpoint.model, checkpoint.config
    num_weights = sum(parameter.numel() for parameter in model.parameters())
    table = Table(title=Text(str(folder)), show_header=False)
    table.add_row("task", checkpoint.task)
    table.add_row("origin", Text(checkpoint.origin))
    table.add_row(
        "network",
        f"{kind_of(model).name}, {config.num_layers} layers, {config.hidden_size} values per token",
    )
    table.add_row("weights", f"{num_weights / 1e6:.1f} million")
    for name, value in _rows(checkpoint):
        table.add_row(name, Text(value))  # names of a folder's are no markup
    return table


def _rows(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Facts of the task's models beside a network."""
    if checkpoint.certificate:
        yield "compared", str(checkpoint.certificate["text"])
    if checkpoint.task == "image-classification":
        sizes = checkpoint.config
        yield "images", f"{sizes.height} x {sizes.width}, {sizes.channels} channels"
    else:
        yield "longest text", f"{checkpoint.max_tokens} tokens"
    if checkpoint.task == "text-generation":
        yield "chat template", "yes" if checkpoint.chat else "none"
    if checkpoint.sampling:
        own = ", ".join(f"{name} {value:g}" for name, value in checkpoint.sampling.items())
        yield "own sampling", own
    if checkpoint.labels:
        yield "labels", ", ".join(checkpoint.labels)
    if checkpoint.task in SCORED and (by := checkpoint.text_network.score_function):
        yield "scores by", by
    if checkpoint.task == "embedding":
        yield from _embedder_rows(checkpoint)


def _embedder_rows(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    network, use = checkpoint.text_network, checkpoint.embedder
    fields = network.embedder_fields
    if network.embedding_size:
        yield "embedding", f"{network.embedding_size} values"
    if use.dimensions:
        yield "cut to", ", ".join(map(str, use.dimensions))
    if sparse_size := fields.get("sparse_size"):
        yield "sparse", f"weights of {sparse_size} words"
    if token_vector_size := fields.get("token_vector_size"):
        yield "token vectors", f"{token_vector_size} values"
    yield "pooling", network.pooling_description
    if use.prompts:
        default = f"; by default {use.default_prompt}" if use.default_prompt else ""
        yield "prompts", ", ".join(use.prompts) + default


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
