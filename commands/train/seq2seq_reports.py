"""Reports on sequence-to-sequence networks: a table, curves, attention as a picture, and JSON.

Knows nothing about training.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S source tokens, T target tokens

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from commands.train.reports import json_of, png_of
from models.data.tokens import TokenizedPairs
from models.recipes.seq2seq import Trained


@dataclass(frozen=True, slots=True)
class Alignment:
    """A network's attention to a source for each token of its output."""

    source: tuple[str, ...]
    output: tuple[str, ...]  # with the end token
    weights: Tensor  # [T, S]


def reports_of(trained: Trained) -> dict[str, bytes]:
    """The files of one training by name."""
    name = trained.pairs.name
    alignment = alignment_of(trained)
    reports = {
        "training.json": json_of({"data": name, **figures_of(trained)}),
        "loss.png": curves_picture(name, {"": trained}),
    }
    return reports | ({"attention.png": attention_picture({"": alignment})} if alignment else {})


def figures_of(trained: Trained) -> dict[str, Any]:
    progress = trained.progress
    return {
        "settings": trained.settings.to_dict(),
        "weights": num_weights(trained),
        "train_pairs": len(trained.pairs.train),
        "test_pairs": len(trained.pairs.test),
        "train": {"symbols": trained.train.symbols, "exact": trained.train.exact},
        "test": {"symbols": trained.test.symbols, "exact": trained.test.exact},
        "training_s": round(progress.seconds, 1),
        "training_cpu_s": round(progress.cpu_seconds, 1),
        "epochs": [
            {
                "epoch": epoch.number,
                "train_loss": epoch.train_loss,
                "test_symbols": epoch.figures["symbols"],
                "test_exact": epoch.figures["exact"],
            }
            for epoch in progress.measurements
        ],
    }


def num_weights(trained: Trained) -> int:
    return sum(parameter.numel() for parameter in trained.network.parameters())


def accuracy_table(title: str, results: Mapping[str, Trained]) -> Table:
    """A row for each network: accuracy per symbol, and the share of exact matches on test."""
    table = Table(title=title)
    for column in (
        "",
        "weights",
        "accuracy, train",
        "accuracy, test",
        "exact match, test",
        "CPU seconds",
    ):
        table.add_column(column, justify="right" if column else "left")
    for name, trained in results.items():
        table.add_row(
            name,
            str(num_weights(trained)),
            f"{trained.train.symbols:.3%}",
            f"{trained.test.symbols:.3%}",
            f"{trained.test.exact:.2%}",
            f"{trained.progress.cpu_seconds:.1f}",
        )
    return table


def curves_picture(title: str, results: Mapping[str, Trained]) -> bytes:
    """Training loss and test accuracy of every epoch; of a single network, every step's loss."""
    figure = Figure(figsize=(8.0, 3.2), layout="constrained")
    losses, accuracies = figure.subplots(1, 2)
    for name, trained in results.items():
        epochs = trained.progress.measurements
        numbers = [epoch.number for epoch in epochs]
        if len(results) == 1:
            steps = trained.progress.step_losses
            places = [(step + 1) * len(epochs) / len(steps) for step in range(len(steps))]
            losses.plot(places, steps, alpha=0.35)
        losses.plot(numbers, [epoch.train_loss for epoch in epochs], label=name)
        accuracies.plot(numbers, [epoch.figures["symbols"] for epoch in epochs], label=name)
    losses.set(xlabel="epoch", ylabel="training loss, nats per token", yscale="log")
    accuracies.set(xlabel="epoch", ylabel="test accuracy per symbol", ylim=(0.0, 1.02))
    if len(results) > 1:
        accuracies.legend()
    figure.suptitle(title)
    return png_of(figure)


def alignment_of(trained: Trained) -> Alignment | None:
    """The attention of the first test pair; None for a network without attention."""
    network: Any = trained.network
    pairs, tokenizer = trained.pairs, trained.tokenizer
    tested = TokenizedPairs(pairs.test[:1], tokenizer, network.config, pairs.name)
    batch = tested.batch([0])
    with torch.inference_mode():
        output_BT, weights_BTS = network.greedy(batch.source, batch.mask, batch.target.shape[1])
    if weights_BTS is None:
        return None
    source, output = (
        tuple(tokenizer.id_to_token(token) or "" for token in row.tolist())
        for row in (batch.source[0], output_BT[0])
    )
    return Alignment(source, output, weights_BTS[0])


def attention_picture(alignments: Mapping[str, Alignment]) -> bytes:
    """A matrix for each network: a row for each output token, a column for each source token."""
    first = next(iter(alignments.values()))
    size = 1.2 + 0.14 * len(first.source)
    figure = Figure(figsize=(size * len(alignments) + 0.8, size + 0.6), layout="constrained")
    panels = figure.subplots(1, len(alignments), squeeze=False)[0]
    for axes, (name, alignment) in zip(panels, alignments.items(), strict=True):
        image = axes.imshow(alignment.weights.numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
        axes.set_xticks(range(len(alignment.source)), alignment.source, rotation=90, fontsize=6)
        axes.set_yticks(range(len(alignment.output)), alignment.output, fontsize=6)
        axes.set(title=name, xlabel="source token")
    panels[0].set_ylabel("output token")
    figure.colorbar(image, ax=panels, fraction=0.05)
    return png_of(figure)
