"""What is measured of a network that fills everyday sentences."""

import math

import numpy as np
import pytest

from models.recipes.everyday_fills import learnt_of, rank_correlation


def test_the_rank_correlation_is_spearmans() -> None:
    """Two of five in each other's place: 1 - 6 * 2 / (5 * 24)."""
    values = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    assert rank_correlation(values, values**3) == pytest.approx(1.0)
    assert rank_correlation(values, -values) == pytest.approx(-1.0)
    assert rank_correlation(values, values[[0, 2, 1, 3, 4]]) == pytest.approx(0.9)


def test_equal_values_share_a_rank() -> None:
    """Ranks 1.5, 1.5, 3 against 1, 2, 3."""
    assert rank_correlation(np.array([0.1, 0.1, 0.8]), np.array([1, 2, 3])) == pytest.approx(
        1.5 / math.sqrt(1.5 * 2)
    )
    assert math.isnan(rank_correlation(np.array([0.5, 0.5]), np.array([0.4, 0.6])))


def test_the_likeliest_word_is_that_of_the_whole_vocabulary() -> None:
    """Tokens 1 and 3 may stand there, 3 more often; then token 0 is likelier than both."""
    right = learnt_of(np.array([0.1, 0.3, 0.1, 0.5]), [1, 3], [0.4, 0.6])
    assert right.rank_correlation == pytest.approx(1.0)
    assert right.is_likeliest
    wrong = learnt_of(np.array([0.6, 0.1, 0.1, 0.2]), [1, 3], [0.4, 0.6])
    assert wrong.rank_correlation == pytest.approx(1.0)
    assert not wrong.is_likeliest
