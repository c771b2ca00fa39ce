"""What may stand where a mask stands: logits to words' probabilities.

Knows nothing of tokenizers, requests or messages.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Fill:
    """One token of the vocabulary, and how likely it stands there."""

    token_id: int
    logprob: float  # natural logarithm, of a softmax over the whole vocabulary

    @property
    def score(self) -> float:
        """Probability, 0 to 1."""
        return math.exp(self.logprob)


def best_fills(logits: np.ndarray, top_k: int) -> list[Fill]:
    """The `top_k` likeliest tokens of one mask's logits [V], best first; of equals the lower id."""
    least = np.partition(logits, -top_k)[-top_k]
    return _ranked(logits, np.flatnonzero(logits >= least), top_k)


def fills_among(logits: np.ndarray, token_ids: Sequence[int]) -> list[Fill]:
    """These tokens at one mask, best first."""
    return _ranked(logits, np.array(token_ids), len(token_ids))


def _ranked(logits: np.ndarray, token_ids: np.ndarray, count: int) -> list[Fill]:
    largest = logits.max()  # exp() of what remains cannot overflow
    total = largest + np.log(np.exp(logits - largest).sum())
    best = token_ids[np.argsort(-logits[token_ids], kind="stable")[:count]]
    return list(map(Fill, best.tolist(), (logits[best] - total).tolist()))


@dataclass(frozen=True, slots=True)
class Difference:
    """A word in two prompts: how much likelier the first makes it than the second."""

    token: str
    logprob: float  # in the first prompt
    other_logprob: float

    @property
    def difference(self) -> float:
        return self.logprob - self.other_logprob


def compared(first: dict[str, float], second: dict[str, float]) -> list[Difference]:
    """Words in both by what the prompts differ in, the first prompt's own before the second's.

    The arguments are words' log-probabilities, as in the comparison of prompts that differ in a
    word: what the model makes of that word is what remains when its general taste is subtracted.
    """
    both = [Difference(word, first[word], second[word]) for word in first if word in second]
    return sorted(both, key=lambda found: -found.difference)
