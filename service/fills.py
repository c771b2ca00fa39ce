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


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the probabilities along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    logprobs: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logprobs


def best_fills(logits: np.ndarray, top_k: int) -> list[Fill]:
    """The `top_k` likeliest tokens of one mask's logits [V], best first; of equals the lower id."""
    return _ranked(log_softmax(logits), np.argsort(-logits, kind="stable")[:top_k])


def fills_among(logits: np.ndarray, token_ids: Sequence[int]) -> list[Fill]:
    """These tokens at one mask, best first."""
    ids = np.array(token_ids)
    return _ranked(log_softmax(logits), ids[np.argsort(-logits[ids], kind="stable")])


def _ranked(logprobs: np.ndarray, token_ids: np.ndarray) -> list[Fill]:
    return [
        Fill(token_id, logprob)
        for token_id, logprob in zip(token_ids.tolist(), logprobs[token_ids].tolist(), strict=True)
    ]


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
