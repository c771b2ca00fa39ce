"""Candidates that are not those of the logits are found."""

import numpy as np

from loadtests.gpu.sameness import problem_of
from service.generation.choosing.step_logits import Candidates, StepLogits

ROWS = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
IDS = np.argsort(ROWS, axis=1)[:, :-9:-1]
SUMS = np.log(np.exp(ROWS).sum(axis=1))


def logits(ids: np.ndarray = IDS, sums: np.ndarray = SUMS, shift: float = 0.0) -> StepLogits:
    values = np.take_along_axis(ROWS, ids, axis=1) + np.float32(shift)
    return StepLogits(ROWS, candidates=Candidates(ids, values, sums, ROWS.shape[1]))


def test_the_largest_logits_are_candidates() -> None:
    assert problem_of(logits()) == ""
    assert problem_of(StepLogits(ROWS)) is None, "a graph for the CPU has none"


def test_wrong_candidates_are_told_apart() -> None:
    others = IDS.copy()
    others[1, 3] = np.argmin(ROWS[1])
    assert "are not the largest" in str(problem_of(logits(others)))
    others[1, 3] = ROWS.shape[1]
    beyond = Candidates(others, np.zeros(others.shape, np.float32), SUMS, ROWS.shape[1])
    assert "no token of the vocabulary" in str(problem_of(StepLogits(ROWS, candidates=beyond)))
    assert "logits of candidates are off by up to 0.25" in str(problem_of(logits(shift=0.25)))
    assert "sum is off by" in str(problem_of(logits(sums=SUMS + 0.01)))
