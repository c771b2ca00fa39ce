"""Whether an engine computes the same model: against float32 transformers, before any timing.

Float32 must give the same greedy tokens and all but the same logits. Where a precision rounds, the
random weights, which no training made robust, would let a token change early, so what is asked is
that the engine runs this model at all: its first tokens are mostly right, and logits follow those
of the reference. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FLOAT32 = "float32"
MOST_FLOAT32_ERROR = 1e-3  # of logits, over the spread of the reference's logits
LEAST_CORRELATION = 0.9  # of rounded logits with the reference's
LEAST_FIRST_TOKENS = 0.5  # of rows whose first token is the reference's, where weights are rounded


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement with the reference; `fault` says why it is not the same model, or is empty."""

    text: str
    fault: str = ""


def logits_agree(
    reference: Sequence[Sequence[float]], found: Sequence[Sequence[float]], precision: str
) -> Agreement:
    """Logits of the same rows, [rows, labels]."""
    expected, given = np.array(reference), np.array(found)
    if expected.shape != given.shape:
        return Agreement("", f"logits of shape {given.shape}, expected {expected.shape}")
    if not np.isfinite(given).all():
        return Agreement("", "logits are not finite")
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
