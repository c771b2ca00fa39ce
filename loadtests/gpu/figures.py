"""How far outputs are from those of PyTorch in float32, and how far they may be. Pure.

Differences are taken relative to the outputs' own size, their root mean square: networks with
random weights give outputs of any size. The limits are about three times what PyTorch itself
differs by when it computes the same networks in that precision on a CPU: up to 3.5 % in float16
and 20 % in bfloat16, with mean cosines of 1.0000 and 0.9998.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from export.checks.parity import cosines

Pairs: TypeAlias = Iterable[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What outputs in one precision may differ by."""

    relative: float  # largest difference over the root mean square of the outputs
    mean_cosine: float
    tie: float  # a best value that leads by less, in the same unit, may be another
    agreement: float = 0.99  # share of rows with the same best value, ties aside


LIMITS = {
    "fp32": Limits(relative=1e-3, mean_cosine=0.99999, tie=1e-3),
    # A GPU multiplies float32 with the mantissa of float16 unless it is told otherwise.
    "tf32": Limits(relative=0.1, mean_cosine=0.9995, tie=0.02),
    "fp16": Limits(relative=0.1, mean_cosine=0.9995, tie=0.02),
    "bf16": Limits(relative=0.6, mean_cosine=0.998, tie=0.15),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """The differences between a graph's outputs and a network's."""

    num_rows: int
    max_abs: float
    relative: float
    mean_cosine: float
    agreement: float | None  # None where no value is chosen

    def is_within(self, limits: Limits) -> bool:
        """Whether all of them are; what is not a number is not."""
        return (
            self.relative <= limits.relative
            and self.mean_cosine >= limits.mean_cosine
            and (self.agreement is None or self.agreement >= limits.agreement)
        )

    def against(self, limits: Limits) -> tuple[bool, str, str]:
        """Whether they are within limits, and both in words: what a check says."""
        expected = (
            f"at most {percent(limits.relative)}, cosine at least {limits.mean_cosine:g}, same "
            f"best at least {percent(limits.agreement)}"
        )
        return self.is_within(limits), str(self), expected

    def __str__(self) -> str:
        best = f", same best {same}" if (same := same_best(self)) else ""
        return (
            f"largest difference {self.max_abs:.2e} ({percent(self.relative)} of the outputs' "
            f"size), mean cosine {self.mean_cosine:.6f}{best}"
        )


def same_best(figures: Figures) -> str:
    """The share of rows with the same best value; empty where none is chosen."""
    return "" if figures.agreement is None else percent(figures.agreement)


def percent(share: float) -> str:
    """Of any size, in three digits."""
    return f"{100 * share:.3g} %"


def compare(
    by_graph: np.ndarray, by_network: np.ndarray, tie: float, *, is_choice: bool
) -> Figures:
    """The figures of the same outputs twice, [rows, values]; of a choice the best value matters.

    NaN in any of them makes the first three NaN.
    """
    ours, theirs = (
        np.asarray(values, np.float64).reshape(len(values), -1) for values in (by_graph, by_network)
    )
    assert ours.shape == theirs.shape, f"{ours.shape} are compared with {theirs.shape}"
    size = float(np.sqrt((theirs**2).mean()))
    max_abs = float(np.abs(ours - theirs).max())
    return Figures(
        num_rows=len(ours),
        max_abs=max_abs,
        relative=max_abs / size if size else float("nan"),
        mean_cosine=float(cosines(ours, theirs).mean()),
        agreement=_agreement(ours, theirs, tie * size) if is_choice else None,
    )


def _agreement(ours: np.ndarray, theirs: np.ndarray, tie: float) -> float:
    """Share of rows whose best value is as good as the network's best, within a tie."""
    chosen = theirs[np.arange(len(theirs)), ours.argmax(axis=1)]
    return float((theirs.max(axis=1) - chosen <= tie).mean())


def largest(pairs: Pairs, limits: Limits, *, is_choice: bool) -> Figures:
    """Those of the pair with the largest relative difference; what is not a number comes first."""
    figures = [compare(*pair, limits.tie, is_choice=is_choice) for pair in pairs]
    return max(figures, key=lambda each: each.relative if each.relative >= 0 else float("inf"))
