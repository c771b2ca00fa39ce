"""Words for a mask: probabilities over all tokens, best first, and two prompts compared."""

import math

import numpy as np
import pytest

from service.fill_picture import scatter_plot
from service.fills import Difference, best_fills, compared, fills_among

LOGITS = np.array([0.0, 3.0, -1.0, 3.0, 2.0], np.float32)
TOTAL = sum(map(math.exp, LOGITS.tolist()))


def test_the_best_fills_have_probabilities_over_all_tokens() -> None:
    """Of two that are equally likely the lower id comes first."""
    found = best_fills(LOGITS, 3)
    assert [fill.token_id for fill in found] == [1, 3, 4]
    assert [fill.score for fill in found] == pytest.approx(
        [math.exp(value) / TOTAL for value in (3.0, 3.0, 2.0)], rel=1e-5
    )
    assert sum(fill.score for fill in best_fills(LOGITS, 5)) == pytest.approx(1.0, rel=1e-5)


def test_candidates_are_ranked_among_themselves_and_scored_as_if_alone() -> None:
    found = fills_among(LOGITS, (2, 4, 0))
    assert [fill.token_id for fill in found] == [4, 0, 2]
    assert {fill.token_id: fill.logprob for fill in found} == {
        fill.token_id: fill.logprob for fill in best_fills(LOGITS, 5) if fill.token_id in (0, 2, 4)
    }


def test_logits_that_are_large_do_not_overflow() -> None:
    found = best_fills(np.array([1e4, 1e4 - 1, -1e4], np.float32), 3)
    assert [fill.token_id for fill in found] == [0, 1, 2]
    assert found[0].logprob == pytest.approx(-math.log1p(math.exp(-1)), abs=2e-3)
    assert found[2].score == 0.0


def test_of_equal_words_the_first_are_taken() -> None:
    assert [fill.token_id for fill in best_fills(np.zeros(50, np.float32), 3)] == [0, 1, 2]


def test_words_are_ranked_by_what_the_prompts_differ_in() -> None:
    """'things' is the likeliest in both, and says nothing; what one prompt lacks is left out."""
    texas = {"things": -1.0, "cattle": -2.0, "stocks": -6.0, "hats": -3.0}
    new_york = {"things": -1.0, "cattle": -7.0, "stocks": -2.5}
    found = compared(texas, new_york)
    assert found == [
        Difference("cattle", -2.0, -7.0),
        Difference("things", -1.0, -1.0),
        Difference("stocks", -6.0, -2.5),
    ]
    assert [word.difference for word in found] == [5.0, 0.0, -3.5]


def test_the_picture_takes_words_that_a_formula_would_not() -> None:
    found = [Difference("$x_", -1.0, -2.0), Difference("##ing", -3.0, -2.5)]
    png = scatter_plot("In $Texas, [MASK].", "In New_York$, [MASK].", found)
    assert png.startswith(b"\x89PNG")
    assert len(png) < 150_000
