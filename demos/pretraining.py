"""Language models pretrained on one corpus, compared at equal compute: a table and a picture.

    python -m demos.pretraining build/gpt build/llama --picture compared.png

Reads what `attendant pretrain gpt` and `attendant pretrain llama` wrote; folders of one network
differ by their seeds. The compute of a step is what PyTorch counts for it, forward and backward:
the operations of products, a multiplication and an addition being two.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated

import torch
import typer
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from commands.train.reports import png_of
from models.checkpoints.checkpoint import Checkpoint, CheckpointError, load_checkpoint
from models.networks.kinds import kind_of
from models.writing import replace_bytes

TERA = 1e12


@dataclass(frozen=True, slots=True)
class Run:
    """One training."""

    network: str
    corpus: tuple[str, ...]  # digests of the texts to train on, then of those to measure on
    num_weights: int
    step_flops: int
    steps: tuple[int, ...]
    bits_per_byte: tuple[float, ...]  # of the held-out texts, after each of the steps

    @property
    def compute(self) -> list[float]:
        """10^12 operations until each measurement."""
        return [self.step_flops * step / TERA for step in self.steps]

    def best(self, most: float) -> tuple[float, float]:
        """The least bits per byte within so much compute, and the compute that it took."""
        within = zip(self.bits_per_byte, self.compute, strict=True)
        return min((bits, compute) for bits, compute in within if compute <= most)


def main(
    folders: Annotated[list[Path], typer.Argument(help="What `attendant pretrain` wrote.")],
    picture: Annotated[Path, typer.Option(help="Where to draw the comparison.")],
) -> None:
    """Compare language models at the compute that each of them had."""
    try:
        runs = sorted(map(read_run, folders), key=lambda run: run.network)
    except (CheckpointError, OSError, KeyError) as fault:
        raise typer.BadParameter(f"{fault}") from None
    if len({run.corpus for run in runs}) > 1:
        raise typer.BadParameter("the folders were trained or measured on different texts")
    Console().print(table_of(runs))
    replace_bytes(picture, picture_of(runs))


def read_run(folder: Path) -> Run:
    """Raises `CheckpointError` or OSError for what is no training of a language model."""
    checkpoint = load_checkpoint(folder)
    report = json.loads((folder / "training.json").read_bytes())
    data, measurements = report["data"], report["measurements"]
    files = [*data["files"], *filter(None, [data["validation_file"]])]
    settings = report["settings"]
    return Run(
        network=kind_of(checkpoint.model).name,
        corpus=tuple(file["sha256"] for file in files),
        num_weights=sum(weights.numel() for weights in checkpoint.model.parameters()),
        step_flops=settings["batch_size"] * settings["accumulation"] * flops_of(checkpoint),
        steps=tuple(each["step"] for each in measurements),
        bits_per_byte=tuple(each["bits_per_byte"] for each in measurements),
    )


def flops_of(checkpoint: Checkpoint) -> int:
    """Operations for one window of text, forward and backward."""
    counter = FlopCounterMode(display=False)
    ids = torch.zeros(1, checkpoint.max_tokens, dtype=torch.int64)
    with counter, sdpa_kernel(SDPBackend.MATH):
        checkpoint.model.train()(ids).sum().backward()
    return counter.get_total_flops()


def table_of(runs: Sequence[Run]) -> Table:
    """A row for each training, at the compute that all of them had."""
    most = min(run.compute[-1] for run in runs)
    table = Table("network", title=f"within {most:.0f} x 10^12 operations", box=None)
    for heading in ("weights", "10^9 operations a step", "best bits per byte", "at 10^12"):
        table.add_column(heading, justify="right")
    for run in runs:
        bits, compute = run.best(most)
        weights, step = f"{run.num_weights / 1e6:.2f} M", f"{run.step_flops / 1e9:.1f}"
        table.add_row(run.network, weights, step, f"{bits:.3f}", f"{compute:.0f}")
    return table


def picture_of(runs: Sequence[Run]) -> bytes:
    """Bits per byte over compute, one colour and marker for each network."""
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    grouped = groupby(runs, key=lambda run: run.network)
    for index, (network, same) in enumerate(grouped):
        line = f"C{index}{'os^v'[index % 4]}-"
        for number, run in enumerate(same):
            label, alpha = (network, 1.0) if number == 0 else (None, 0.6)
            axes.plot(run.compute, run.bits_per_byte, line, label=label, alpha=alpha)
    axes.set(xlabel="training, 10$^{12}$ operations", ylabel="held-out text, bits per byte")
    axes.grid(alpha=0.3)
    axes.legend()
    return png_of(figure)


if __name__ == "__main__":
    typer.run(main)
