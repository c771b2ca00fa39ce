"""Measure of how well a BERT has learnt the probabilities of everyday sentences.

    python -m models.recipes.everyday_fills CHECKPOINT

Asked of the prompts of `models/data/generated/everyday.py`, which no document of its corpus
answers. By topic: the rank correlation of the probabilities that the network gives the words of a
choice with those that they are drawn by, and how often its likeliest word of all is the likeliest.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.data.generated.everyday import Prompt, prompts
from models.data.word_pieces import SPECIAL, UNKNOWN

UNKNOWN_ID = SPECIAL.index(UNKNOWN)
DIGITS = 9  # sums in another order differ in the last ones; words as likely have one rank


@dataclass(frozen=True, slots=True)
class Learnt:
    """The figures of one prompt."""

    rank_correlation: float  # Spearman's, of all words of the choice; NaN where it has no order
    is_likeliest: bool  # no other word of the vocabulary is likelier than the right one


def fill(checkpoint: Checkpoint, text: str) -> np.ndarray:
    """The probability of each token at the text's one mask, [V]."""
    ids = torch.tensor([checkpoint.tokenizer.encode(text).ids])
    with torch.inference_mode():
        logits = checkpoint.model(ids, torch.ones_like(ids), torch.zeros_like(ids))
    (probabilities,) = logits.float().softmax(dim=1).numpy()
    return np.asarray(probabilities)


def learnt_of(probabilities: np.ndarray, words: Sequence[int], shares: Sequence[float]) -> Learnt:
    """The figures for a mask, where each of the words, by its id, stands with such a share."""
    likeliest = words[int(np.argmax(shares))]
    return Learnt(
        rank_correlation(probabilities[list(words)], np.array(shares)),
        int(probabilities.argmax()) == likeliest,
    )


def rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's; NaN where all values of either are equal."""
    ranks = [_ranks(values) for values in (one, other)]
    if any(np.ptp(each) == 0 for each in ranks):
        return float("nan")
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """From 1; equal values have the mean of their ranks."""
    _, place, counts = np.unique(values.round(DIGITS), return_inverse=True, return_counts=True)
    ranks: np.ndarray = (counts.cumsum() - (counts - 1) / 2)[place]
    return ranks


def judge(checkpoint: Checkpoint, prompt: Prompt) -> Learnt:
    """The figures of one prompt; a word that is no token of the checkpoint counts as unknown."""
    tokenizer = checkpoint.tokenizer
    words = [tokenizer.token_to_id(word.lower()) or UNKNOWN_ID for word in prompt.shares]
    return learnt_of(fill(checkpoint, prompt.text), words, list(prompt.shares.values()))


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m models.recipes.everyday_fills CHECKPOINT")
    checkpoint = load_checkpoint(arguments[0])
    by_topic = defaultdict[str, list[Learnt]](list)
    for prompt in prompts():
        learnt = judge(checkpoint, prompt)
        by_topic[prompt.topic].append(learnt)
        by_topic["all"].append(learnt)
    by_topic["all"] = by_topic.pop("all")  # the last row
    table = Table("topic", "prompts", "rank correlation", "likeliest word right", box=None)
    for topic, some in by_topic.items():
        correlations = np.array([each.rank_correlation for each in some])
        shown = "" if np.isnan(correlations).all() else f"{np.nanmean(correlations):.2f}"
        right = np.mean([each.is_likeliest for each in some])
        table.add_row(topic, str(len(some)), shown, f"{right:.0%}")
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
