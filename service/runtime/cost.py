"""The cost of a run by its shape; pure.

A run of B right-padded rows of S tokens, of which N in all are text, takes

    overhead + N + padding * (B * S - N) + square * B * S^2

Each is in the price of one token, so that the unit of time cancels out wherever costs are compared.
Attention is quadratic in S. Whether padding costs as much as text is a property of the graph: ours
compute it in attention only (decision 0018).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Amount = TypeVar("Amount", float, np.ndarray[Any, np.dtype[Any]])

MAX_MISFIT = 0.25  # of a time, in either direction; a curve further off says nothing
MAX_OVERHEAD = 1_024.0  # tokens; beyond that something else was measured


@dataclass(frozen=True, slots=True)
class CostCurve:
    """The prices of a run, in tokens of text. The default is for graphs that were not measured."""

    overhead: float = 16.0  # decision 0018
    padding: float = 1.0
    square: float = 0.0
    token_s: float = 0.0  # seconds of one; 0: not measured

    def __str__(self) -> str:
        run_s = self.overhead * self.token_s
        return f"measured: {self.token_s * 1e6:.1f} us per token, {run_s * 1e3:.1f} ms per run"

    def work(self, num_rows: Amount, longest: Amount, num_tokens: Amount) -> Amount:
        """The price of rows without the overhead; of many batches at once, where given arrays."""
        positions = num_rows * longest
        padding = positions - num_tokens
        work: Amount = num_tokens + self.padding * padding + self.square * positions * longest
        return work


def fit(samples: Sequence[tuple[Sequence[int], float]]) -> CostCurve | None:
    """The curve of measured runs, each the lengths of its rows and its seconds.

    Least squares of relative errors, no price below 0. None where the times fit no such curve.
    """
    terms = np.array([_terms(lengths) for lengths, _ in samples])
    seconds = np.array([seconds for _, seconds in samples])
    relative = terms / seconds[:, None]
    prices = np.zeros(terms.shape[1])
    left = list(range(terms.shape[1]))
    while left:
        found = np.linalg.lstsq(relative[:, left], np.ones(len(samples)), rcond=None)[0]
        if (found >= 0).all():
            prices[left] = found
            break
        del left[int(np.argmin(found))]
    overhead_s, token_s, padding_s, square_s = prices.tolist()
    if token_s <= 0 or (np.abs(relative @ prices - 1) > MAX_MISFIT).any():
        return None
    return CostCurve(
        min(overhead_s / token_s, MAX_OVERHEAD), padding_s / token_s, square_s / token_s, token_s
    )


def _terms(lengths: Sequence[int]) -> tuple[int, int, int, int]:
    """The factors of the four prices."""
    positions, num_tokens = len(lengths) * max(lengths), sum(lengths)
    return 1, num_tokens, positions - num_tokens, positions * max(lengths)
