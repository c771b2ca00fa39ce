"""The tokens of thoughts are counted, and the end marker follows the last one of a budget."""

import pytest

from service.families.thought_budget import ThoughtBudget
from service.families.thoughts import FORMS, Thoughts

THINK = FORMS["think"]
END = tuple(b"</think>")


def output(written: str, most: int, *, is_open: bool = False) -> str:
    """What is said by a model that would write this, a byte a token."""
    thoughts = Thoughts(THINK, is_open, is_closed=False)
    budget = ThoughtBudget(thoughts, most, END, lambda token_id: bytes([token_id]))
    said = bytearray()
    ahead = list(written.encode())
    while ahead or budget.forced is not None:
        forced = budget.forced
        token_id = ahead.pop(0) if forced is None else forced
        said.append(token_id)
        budget.fork().take(0)  # it goes on by itself
        budget.take(token_id)
    return said.decode(errors="replace")


@pytest.mark.parametrize(
    ("most", "said"),
    [
        (0, "</think>abcdé"),
        (3, "abc</think>dé"),
        (5, "abcd\N{REPLACEMENT CHARACTER}</think>\N{REPLACEMENT CHARACTER}"),
        (6, "abcdé</think>"),
        (7, "abcdé"),
    ],
)
def test_open_thoughts_end_at_their_budget(most: int, said: str) -> None:
    assert output("abcdé", most, is_open=True) == said


def test_a_marker_of_the_model_is_not_counted_and_its_own_end_stays() -> None:
    assert output("<think>abc</think>long answer", 3) == "<think>abc</think></think>long answer"
    assert output("<think>abc</think>long answer", 11) == "<think>abc</think>long answer"
    assert output("<think>abcd", 2) == "<think>ab</think>cd"


@pytest.mark.parametrize("most", range(4, 16))
def test_an_end_marker_that_the_model_has_begun_is_not_cut(most: int) -> None:
    assert output("<think>abc</think>answer", most) == "<think>abc</think>answer"


@pytest.mark.parametrize(
    ("written", "most", "said"),
    [
        ("ab</thin?cd", 5, "ab</thin?</think>cd"),  # it went on otherwise, and all is counted
        ("ab</thin?cd", 9, "ab</thin?</think>cd"),
        ("ab<<<</think>e", 5, "ab<<<</think>e"),  # three of these are of the thoughts
        ("ab<<<<<<", 4, "ab<<<<</think><<"),
    ],
)
def test_what_might_have_become_the_marker_is_counted(written: str, most: int, said: str) -> None:
    assert output(written, most, is_open=True) == said


def test_an_answer_without_thoughts_is_free() -> None:
    for most in (0, 3):
        assert output("just an answer", most) == "just an answer"
        assert output("a</think> <think>more", most) == "a</think> <think>more"
    closed = ThoughtBudget(
        Thoughts(THINK, is_open=False, is_closed=True), 0, END, lambda _: b"<think>"
    )
    closed.take(0)
    assert closed.forced is None
