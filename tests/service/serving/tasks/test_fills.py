"""Words for a mask: probabilities over all tokens, best first, and two prompts compared."""

import math
import struct

import numpy as np
import pytest

from commands.ask.shown.comparison import ComparedWord, Crossing, compared, crossing_of, short_names
from commands.ask.shown.fill_picture import picture
from service.serving.tasks.fill_mask import best_fills, fills_among

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
    found = compared([texas, new_york])
    assert found == [
        ComparedWord("cattle", (-2.0, -7.0)),
        ComparedWord("things", (-1.0, -1.0)),
        ComparedWord("stocks", (-6.0, -2.5)),
    ]
    assert [word.difference for word in found] == [5.0, 0.0, -3.5]


def test_of_several_prompts_the_words_that_differ_most_come_first() -> None:
    prompts = [
        {"a": -1.0, "b": -2.0, "c": -3.0},
        {"a": -1.5, "b": -6.0, "c": -3.0, "d": 0.0},
        {"a": -4.0, "b": -2.0, "c": -3.5},
    ]
    found = compared(prompts)
    assert [(word.token, word.spread) for word in found] == [("b", 4.0), ("a", 3.0), ("c", 0.5)]
    assert found[1].logprobs == (-1.0, -1.5, -4.0)


CROSSED = [
    f"In {year}, {who} [MASK] for {whose} work."
    for who, whose in (("she", "her"), ("he", "his"))
    for year in (1908, 2018)
]


@pytest.mark.parametrize(
    ("prompts", "names"),
    [
        (CROSSED, ["1908 she", "2018 she", "1908 he", "2018 he"]),
        (["In Texas, [MASK].", "In Maine, [MASK]."], ["Texas", "Maine"]),
        (["In Texas, [MASK].", "In New York, [MASK]."], ["1", "2"]),
        (["the [MASK]", "the [MASK]", "a [MASK]"], ["1", "2", "3"]),
        ([f"the [MASK] {'x' * 40}{place}" for place in range(2)], ["1", "2"]),
    ],
)
def test_prompts_are_named_by_the_words_that_they_differ_in(
    prompts: list[str], names: list[str]
) -> None:
    assert short_names(prompts) == names


def test_two_words_of_two_places_are_a_crossing() -> None:
    """In 1908 'worked' is e^3 likelier with he, in 2018 e^1: the change is -2."""
    crossing = crossing_of(CROSSED)
    assert crossing == Crossing(("1908", "2018"), ("she", "he"), (0, 2, 1, 3))
    word = ComparedWord("worked", (-5.0, -3.0, -2.0, -2.0))
    assert crossing.differences(word) == (-3.0, -1.0)
    assert crossing.change(word) == 2.0
    assert crossing_of(CROSSED[:3]) is None
    assert crossing_of(["in a x", "in a y", "in b x", "in b z"]) is None
    assert crossing_of(["in a x", "in a y", "in b x", "in b x"]) is None


@pytest.mark.parametrize(
    "prompts",
    [
        ["In $Texas, [MASK].", "In New_York$, [MASK]."],
        CROSSED,
        ["In $a [MASK].", "In b_ [MASK].", "In c$ [MASK]."],
    ],
)
def test_the_picture_takes_words_that_a_formula_would_not(prompts: list[str]) -> None:
    found = [
        ComparedWord("$x_", (-1.0, -2.0, -4.0, -1.5)[: len(prompts)]),
        ComparedWord("##ing", (-3.0, -2.5, -1.0, -5.0)[: len(prompts)]),
    ]
    png = picture(prompts, found)
    assert png.startswith(b"\x89PNG")
    assert len(png) < 150_000


def test_a_caption_of_a_long_prompt_wraps_within_the_picture() -> None:
    """Prompts of 400 characters make the picture no larger, and no axis too small to read."""
    long = [f"{'a long way to go ' * 24}{place} [MASK]" for place in ("here", "there")]
    found = [ComparedWord("a", (-1.0, -2.0)), ComparedWord("b", (-3.0, -2.5))]
    size = struct.unpack(">II", picture(long, found)[16:24])
    assert size == struct.unpack(">II", picture(["a [MASK]", "b [MASK]"], found)[16:24])
