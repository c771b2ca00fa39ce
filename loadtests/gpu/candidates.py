"""Whether the likeliest tokens that a graph gives are those of its own logits. Pure."""
# ruff: noqa: N806 - suffixes are array layouts: B rows, V vocabulary

import numpy as np

from service.generation.choosing.step_logits import StepLogits

LOG_SUM_ERROR = 1e-3  # of a float32 sum in another order


def problem_of(logits: StepLogits) -> str | None:
    """What is wrong with the candidates of a step, or empty; None where the graph gives none."""
    candidates, rows_BV = logits.candidates, logits.whole()
    if candidates is None:
        return None
    if candidates.ids.min() < 0 or candidates.ids.max() >= rows_BV.shape[1]:
        return "a candidate is no token of the vocabulary"
    at_ids = np.take_along_axis(rows_BV, candidates.ids, axis=1)
    if not np.array_equal(at_ids, candidates.logits):
        return f"logits of candidates are off by up to {np.abs(at_ids - candidates.logits).max():g}"
    num_candidates = candidates.ids.shape[1]
    largest = np.sort(rows_BV, axis=1)[:, -num_candidates:]
    if not np.array_equal(np.sort(candidates.logits, axis=1), largest):
        return f"the {num_candidates} candidates are not the largest logits"
    highest_B1 = rows_BV.max(axis=1, keepdims=True)
    sums_B = (
        np.log(np.exp((rows_BV - highest_B1).astype(np.float64)).sum(axis=1)) + highest_B1[:, 0]
    )
    error = float(np.abs(sums_B - candidates.log_sums).max())
    return "" if error <= LOG_SUM_ERROR else f"the logarithm of the sum is off by {error:g}"
