"""Train and judge a scorer of pairs of texts, such as a query and a document (a reranker).

A pair's score is the sigmoid of one logit, and its target any number from 0 to 1; the loss is their
cross entropy. The figure is the correlation of scores and targets.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from models.checkpoints.checkpoint import Checkpoint
from models.data.batches import TokenizedDataset, tokenize
from models.data.datasets import (
    DEFAULT_COLUMNS,
    Columns,
    Dataset,
    Example,
    read_dataset,
    split_groups,
)
from models.errors import DatasetError
from models.networks.heads import PairScorer, SequenceClassifier
from models.recipes.finetune import Recipe, classifier_from
from models.training.evaluation import predict_logits
from models.training.supervised import Criterion


@dataclass(frozen=True, slots=True)
class ScoredPairs(Dataset):
    """Pairs of texts, whose labels are numbers from 0 to 1."""

    @property
    def scores(self) -> tuple[float, ...]:
        return tuple(float(example.label) for example in self.examples)

    def check(self, held_out: Sequence[Dataset]) -> None:
        """Any scores can be learnt, and judged."""

    def split(self, fractions: Sequence[float], seed: int) -> list[Self]:
        """Parts: the remainder, then one per fraction; pairs of one first text stay together."""
        groups = [example.text for example in self.examples]
        return list(map(self.at, split_groups(self.name, groups, fractions, seed)))


def read_scored_pairs(path: Path, columns: Columns = DEFAULT_COLUMNS) -> ScoredPairs:
    """The rows of a file with a column of scores and two of texts, or `DatasetError`."""
    dataset = read_dataset(path, columns)
    if not dataset.has_pairs:
        names = f"{columns.label}, {columns.text} and {columns.text_pair}"
        raise DatasetError(f"{path}: no {columns.text_pair}, expected the columns {names}")
    for example in dataset.examples:
        _check_score(path, example)
    return ScoredPairs(dataset.name, dataset.examples)


def _check_score(path: Path, example: Example) -> None:
    try:
        score = float(example.label)
    except ValueError:
        score = -1.0
    if not 0.0 <= score <= 1.0:
        raise DatasetError(
            f"{path}:{example.line}: the label {example.label!r} is no score, expected a number "
            "from 0 to 1"
        )


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Token ids of pairs, and a score for each."""

    texts: TokenizedDataset
    scores: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def lengths(self) -> list[int]:
        return self.texts.lengths()

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        """The inputs of the texts, and scores [B], float32."""
        *inputs, _ = self.texts.batch(indices)
        return *inputs, torch.tensor([self.scores[i] for i in indices])


@dataclass(frozen=True, slots=True)
class ScoreEvaluation:
    """Figures over one dataset."""

    loss: float
    correlation: float  # Pearson's, -1 to 1; 0 where all scores are equal
    mean_error: float  # of a score, 0 to 1
    num_rows: int

    def scores(self) -> dict[str, float]:
        return {"correlation": self.correlation, "accuracy": 1.0 - self.mean_error}

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.num_rows,
            "loss": self.loss,
            "correlation": self.correlation,
            "mean_error": self.mean_error,
        }


def tokenize_pairs(
    dataset: ScoredPairs, _: Sequence[str], tokenizer: Tokenizer, max_tokens: int, pad_token_id: int
) -> ScoredRows:
    """Tokenize all pairs; of those over `max_tokens` the longer text is cut first."""
    texts = tokenize(dataset, dataset.labels(), tokenizer, max_tokens, pad_token_id)
    return ScoredRows(texts, dataset.scores)


def loss_of_scores(logits: Tensor, scores: Tensor) -> Tensor:
    """The cross entropy of the sigmoid of logits [B, 1] with scores [B]."""
    return F.binary_cross_entropy_with_logits(logits[:, 0], scores)


def judge_scores(model: nn.Module, rows: ScoredRows) -> ScoreEvaluation:
    """Run all rows through the model."""
    logits, targets = predict_logits(model, rows, 1), torch.tensor(rows.scores)
    scores = torch.sigmoid(logits[:, 0])
    is_constant = bool(scores.std(correction=0) == 0 or targets.std(correction=0) == 0)
    return ScoreEvaluation(
        loss=loss_of_scores(logits, targets).item(),
        correlation=0.0
        if is_constant
        else float(np.corrcoef(scores.numpy(), targets.numpy())[0, 1]),
        mean_error=(scores - targets).abs().mean().item(),
        num_rows=len(rows),
    )


def scorer_from(checkpoint: Checkpoint, _: ScoredPairs) -> tuple[PairScorer, tuple[str, ...]]:
    """Copy the scorer, or put a fresh head on a copy of an encoder.

    Raises CheckpointError for a checkpoint of anything but an encoder.
    """
    if isinstance(checkpoint.model, PairScorer):
        scorer = copy.deepcopy(checkpoint.model)
        scorer.head.score_function = ""  # the loss is that of the sigmoid
        return scorer, ()
    assert checkpoint.encoder_model is not None, "it raises for other networks"
    classifier, _labels = classifier_from(checkpoint, ("score",))
    assert isinstance(classifier, SequenceClassifier), "the network is an encoder's"
    return PairScorer(classifier.encoder, classifier.head), ()


PAIR_SCORING = Recipe(
    "pair-scoring",
    scorer_from,
    tokenize_pairs,
    lambda _: Criterion(loss_of_scores, judge_scores, "correlation"),
)
