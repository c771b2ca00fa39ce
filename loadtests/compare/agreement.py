"""Whether an engine computes the same model: against float32 transformers, before any timing.

Float32 must give the same greedy tokens and all but the same logits. Where a precision rounds, the
random weights, which no training made robust, would let a token change early, so what is asked is
that the engine runs this model at all: its first tokens are mostly right, and logits follow those
of the reference. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

FLOAT32 = "float32"
MOST_FLOAT32_ERROR = 1e-3  # of logits, over the spread of the reference's logits
LEAST_CORRELATION = 0.9  # of rounded logits with the reference's
LEAST_COSINE = 0.9  # of rounded vectors with the reference's, the mean
LEAST_FIRST_TOKENS = 0.5  # of rows whose first token is the reference's, where weights are rounded
Rows: TypeAlias = Sequence[Sequence[float]] | np.ndarray


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement with the reference; `fault` says why it is not the same model, or is empty."""

    text: str
    fault: str = ""


def _fault_of_shape(expected: np.ndarray, given: np.ndarray, what: str) -> str:
    if expected.shape != given.shape:
        return f"{what} of shape {given.shape}, expected {expected.shape}"
    return "" if np.isfinite(given).all() else f"{what} are not finite"


def logits_agree(
    reference: Sequence[Sequence[float]], found: Sequence[Sequence[float]], precision: str
) -> Agreement:
    """Logits of the same rows, [rows, labels]."""
    expected, given = np.array(reference), np.array(found)
    if fault := _fault_of_shape(expected, given, "logits"):
        return Agreement("", fault)
    # Around each label's mean: that one label is always the likelier says nothing of the rows.
    spread, found_spread = (values - values.mean(0) for values in (expected, given))
    error = float(np.abs(expected - given).max() / spread.std())
    correlation = float(np.corrcoef(spread.ravel(), found_spread.ravel())[0, 1])
    text = f"error {error:.2g} of the spread, correlation {correlation:.4f}"
    if precision == FLOAT32 and error > MOST_FLOAT32_ERROR:
        return Agreement(text, f"{text}; float32 may differ by {MOST_FLOAT32_ERROR:g}")
    if correlation < LEAST_CORRELATION:
        return Agreement(text, f"{text}; at least {LEAST_CORRELATION:g} is expected")
    return Agreement(text)


def vectors_agree(reference: Rows, found: Rows, precision: str) -> Agreement:
    """Embeddings of the same texts, [texts, values]: cosines, and how similarities correlate."""
    expected, given = np.array(reference), np.array(found)
    if fault := _fault_of_shape(expected, given, "vectors"):
        return Agreement("", fault)
    expected, given = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (expected, given))
    cosines = (expected * given).sum(axis=1)
    pairs = np.triu_indices(len(expected), 1)
    correlation = np.corrcoef((expected @ expected.T)[pairs], (given @ given.T)[pairs])[0, 1]
    error = float(np.abs(expected - given).max())
    text = (
        f"cosine {cosines.mean():.5f}, least {cosines.min():.5f}, "
        f"correlation of similarities {correlation:.4f}"
    )
    if precision == FLOAT32 and error > MOST_FLOAT32_ERROR:
        return Agreement(text, f"{text}; a value of float32 may differ by {MOST_FLOAT32_ERROR:g}")
    if not cosines.mean() >= LEAST_COSINE:
        return Agreement(text, f"{text}; a mean cosine of {LEAST_COSINE:g} is expected")
    return Agreement(text)


def scores_agree(reference: Rows, found: Rows, precision: str) -> Agreement:
    """Scores of the same documents from 0 to 1, [documents, 1]: errors, and how they correlate."""
    expected, given = np.array(reference), np.array(found)
    if fault := _fault_of_shape(expected, given, "scores"):
        return Agreement("", fault)
    errors = np.abs(expected - given)
    correlation = float(np.corrcoef(expected[:, 0], given[:, 0])[0, 1])
    text = f"error {errors.mean():.2g}, most {errors.max():.2g}, correlation {correlation:.4f}"
    if precision == FLOAT32 and errors.max() > MOST_FLOAT32_ERROR:
        return Agreement(text, f"{text}; float32 may differ by {MOST_FLOAT32_ERROR:g}")
    if not correlation >= LEAST_CORRELATION:
        return Agreement(text, f"{text}; at least {LEAST_CORRELATION:g} is expected")
    return Agreement(text)


def tokens_agree(
    reference: Sequence[Sequence[int]],
    found: Sequence[Sequence[float]],
    precision: str,
    likely: Sequence[Sequence[int]] = (),
) -> Agreement:
    """New tokens of the same prompts, as many as were asked for.

    `likely` are the first tokens that a rounding engine may choose, where it is not the
    reference's own only: with four bits, nearly every random weight moves by a tenth.
    """
    counts, expected_counts = [len(row) for row in found], [len(row) for row in reference]
    if counts != expected_counts:
        return Agreement("", f"{counts} tokens per row, expected {expected_counts}")
    same = [_num_equal(a, b) for a, b in zip(reference, found, strict=True)]
    allowed = likely or [[row[0]] for row in reference]
    first = sum(row[0] in each for row, each in zip(found, allowed, strict=True)) / len(same)
    text = f"{sum(same)} of {sum(counts)} tokens equal before the first that differs"
    if precision == FLOAT32 and same != counts:
        return Agreement(text, f"{text}; float32 must give all")
    if first < LEAST_FIRST_TOKENS:
        return Agreement(
            text, f"{first:.0%} of first tokens expected ones, at least {LEAST_FIRST_TOKENS:.0%}"
        )
    return Agreement(text)


def _num_equal(reference: Sequence[int], found: Sequence[float]) -> int:
    pairs = zip(reference, found, strict=True)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(reference))
