"""Evaluation of a classifier on labelled rows, and what a network gives for each token of them.

Knows nothing about files or training. Always in float32, because that is how the model will be
judged in the precision of its reader, not of its training.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from torch import Tensor, nn
from torch.nn import functional as F

from models.data.batches import LabelledRows, Rows, sorted_batches
from models.data.tagged import Counts

EVALUATION_ROWS = 64


@dataclass(frozen=True, slots=True)
class Prediction:
    """The likeliest label of a row, and its probability."""

    label: str
    probability: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures over one dataset; `confusion[i][j]` counts rows of label i taken for label j."""

    loss: float
    accuracy: float
    # The F1 of the labels that occur, averaged with equal weight, however rare a label is.
    macro_f1: float
    labels: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    predictions: tuple[Prediction, ...] = ()  # of the rows, in their order

    @property
    def by_label(self) -> dict[str, Counts]:
        """The rows of each label that were found, that were taken for it, and that are of it."""
        counts = np.array(self.confusion)
        return {
            label: Counts(int(counts[i, i]), int(counts[:, i].sum()), int(counts[i].sum()))
            for i, label in enumerate(self.labels)
        }

    @property
    def num_rows(self) -> int:
        return sum(map(sum, self.confusion))

    def scores(self) -> dict[str, float]:
        return {"accuracy": self.accuracy, "macro_f1": self.macro_f1}

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.num_rows,
            "loss": self.loss,
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "labels": list(self.labels),
            "by_label": {
                label: {"precision": each.precision, "recall": each.recall, "rows": each.true}
                for label, each in self.by_label.items()
            },
            "confusion": [list(row) for row in self.confusion],
        }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode and without gradients; afterwards in the mode that it was in."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def evaluate(model: nn.Module, rows: LabelledRows, labels: Sequence[str]) -> Evaluation:
    """Run all rows through the model."""
    logits = predict_logits(model, rows, len(labels))
    targets = torch.tensor(rows.targets)
    probabilities, predicted = logits.softmax(dim=-1).max(dim=-1)
    indices = range(len(labels))
    counts = confusion_matrix(targets.numpy(), predicted.numpy(), labels=list(indices))
    return Evaluation(
        loss=F.cross_entropy(logits, targets).item(),
        accuracy=float(accuracy_score(targets.numpy(), predicted.numpy())),
        macro_f1=float(
            f1_score(
                targets.numpy(),
                predicted.numpy(),
                labels=list(indices),
                average="macro",
                zero_division=np.nan,
            )
        ),
        labels=tuple(labels),
        confusion=tuple(tuple(int(count) for count in row) for row in counts),
        predictions=tuple(
            Prediction(labels[label], probability)
            for label, probability in zip(predicted.tolist(), probabilities.tolist(), strict=True)
        ),
    )


def predict_logits(model: nn.Module, rows: Rows, num_labels: int) -> Tensor:
    """Logits [number of rows, num_labels] in the order of the rows."""
    logits = torch.empty(len(rows), num_labels)
    with evaluating(model):
        for indices in sorted_batches(rows.lengths(), EVALUATION_ROWS):
            *inputs, _ = rows.batch(indices)
            logits[indices] = model(*inputs)
    return logits


def predict_rows(model: nn.Module, rows: Rows) -> list[Tensor]:
    """A network's packed rows, [tokens, outputs] of each row in their order."""
    lengths = rows.lengths()
    found: dict[int, Tensor] = {}
    with evaluating(model):
        for indices in sorted_batches(lengths, EVALUATION_ROWS):
            *inputs, _ = rows.batch(indices)
            outputs = model(*inputs).split([lengths[i] for i in indices])
            found.update(zip(indices, outputs, strict=True))
    return [found[i] for i in range(len(rows))]
