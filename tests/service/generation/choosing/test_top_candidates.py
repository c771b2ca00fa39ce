"""The largest logits of a row, against sorting all of it."""

import numpy as np
import pytest

from service.generation.choosing.top_candidates import best_ids, floor_of_best
from tests.fakes.sampling import random_logits


@pytest.mark.parametrize("count", [1, 20, 100, 150])
@pytest.mark.parametrize("size", [200, 10_000])
def test_as_many_as_are_wanted_reach_the_floor_and_few_more(count: int, size: int) -> None:
    """Of 10,000 logits at most four times as many: groups of 64 have one each that counts."""
    logits = random_logits(count, size)
    num_above = int((logits >= floor_of_best(logits, count)).sum())
    assert count <= num_above <= 4 * count + 16


@pytest.mark.parametrize("count", [1, 7, 64, 300])
@pytest.mark.parametrize("digits", [0, 6])
def test_the_best_are_those_that_sorting_finds(count: int, digits: int) -> None:
    """With few digits many are alike: lower ids come first."""
    logits = random_logits(1, 3_000).round(digits)
    wanted = np.sort(np.argsort(-logits, kind="stable")[:count])
    assert best_ids(logits, count).tolist() == wanted.tolist()


def test_banned_tokens_are_never_among_the_best() -> None:
    logits = np.full(500, -np.inf, np.float32)
    logits[[3, 400]] = (1.0, 2.0)
    assert best_ids(logits, 10).tolist() == [3, 400]
