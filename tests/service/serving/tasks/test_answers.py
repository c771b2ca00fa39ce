"""The best answers of windows: against all spans one by one, merged, and none at all."""

from itertools import product

import numpy as np
import pytest

from service.serving.tasks.answers import NUM_BEST, Answers, Window, answers_of, best_spans


def window(
    *tokens: tuple[float, float], first: int = 1, start: int = 0, num_question: int = 1
) -> Window:
    """`first` scores no answer; then the question; token i of the context is characters 2 i."""
    logits = np.array([(first, 0), *[(0, 0)] * num_question, *tokens], np.float32)
    outside = 1 + num_question
    offsets = [(0, 0)] * outside
    offsets += [(start + 2 * i, start + 2 * i + 1) for i in range(len(tokens))]
    return Window(logits, np.array(offsets), np.arange(len(logits)) >= outside)


def test_the_best_spans_are_those_of_all_that_are_allowed() -> None:
    generator = np.random.default_rng(0)
    for num_tokens, longest in ((3, 30), (12, 1), (12, 4), (40, 30), (40, 100)):
        tokens = generator.normal(size=(num_tokens, 2)).tolist()
        found = window(*map(tuple, tokens), num_question=3)
        allowed = sorted(
            (
                (float(found.logits[first, 0] + found.logits[last, 1]), first, last)
                for first, last in product(range(4, 4 + num_tokens), repeat=2)
                if first <= last < first + longest
            ),
            reverse=True,
        )
        best = best_spans(found, longest)
        assert [span[1:] for span in best] == [span[1:] for span in allowed[:NUM_BEST]]
        assert [span[0] for span in best] == pytest.approx([s[0] for s in allowed[:NUM_BEST]])


def test_an_answer_never_ends_before_it_starts_nor_in_the_question() -> None:
    """The best end is before the best start, and the best of all is the question's."""
    found = window((0, 9), (9, 0), (0, 1))
    found.logits[1] = 50
    (answer,) = answers_of([found], 30).spans
    assert (answer.start, answer.end) == (2, 5)


def test_probabilities_are_among_spans_and_no_answer() -> None:
    """One token: its span scores 3, no answer 1; softmax of the two."""
    found = answers_of([window((1, 2))], 30)
    (answer,) = found.spans
    assert answer.score == pytest.approx(np.e**2 / (np.e**2 + 1))
    assert found.no_answer_score == pytest.approx(1 / (np.e**2 + 1))
    assert found.is_answered
    assert not answers_of([window((0, 0), first=3)], 30).is_answered


def test_an_answer_beyond_the_first_window_is_found() -> None:
    first, second = window((0, 0), (1, 1), first=9), window((8, 1), (0, 8), start=10)
    found = answers_of([first, second], 30)
    assert (found.spans[0].start, found.spans[0].end) == (10, 13)
    assert found.is_answered, "no answer in one window says nothing of the other"
    turned = answers_of([second, first], 30)
    assert (turned.spans[0].start, turned.spans[0].end) == (10, 13), "whatever the order"


def test_a_span_of_two_windows_counts_once_with_its_higher_score() -> None:
    weak, strong = window((1, 1)), window((3, 3))
    alone = answers_of([strong], 30)
    assert answers_of([weak, strong], 30) == answers_of([strong, weak], 30) == alone


def test_padding_after_a_context_takes_no_place_among_the_best_spans() -> None:
    """Three tokens, then more that are none of the context's than there are best spans."""
    short = window((5, 5), (4, 7), (3, 3))
    padding = np.zeros((NUM_BEST + 5, 2), np.int64)
    padded = Window(
        np.concatenate([short.logits, padding.astype(np.float32)]),
        np.concatenate([short.offsets, padding]),
        np.concatenate([short.is_context, np.zeros(len(padding), bool)]),
    )
    assert best_spans(padded, 30) == best_spans(short, 30)


def test_answers_do_not_overlap_and_are_as_many_as_asked() -> None:
    found = answers_of([window((5, 5), (4, 6), (3, 3))], 30, count=5)
    assert [(span.start, span.end) for span in found.spans] == [(0, 3), (4, 5)]
    assert len(answers_of([window((5, 5), (4, 6), (3, 3))], 1, count=2).spans) == 2
    scores = [span.score for span in found.spans]
    assert scores == sorted(scores, reverse=True)
    assert sum(scores) + found.no_answer_score <= 1.0 + 1e-6


def test_answers_are_no_longer_than_asked() -> None:
    tokens = [(0.0, 0.0)] * 10
    tokens[0], tokens[9] = (9.0, 0.0), (0.0, 9.0)
    longest = answers_of([window(*tokens)], 10).spans[0]
    assert (longest.start, longest.end) == (0, 19)
    shorter = answers_of([window(*tokens)], 9).spans[0]
    assert shorter.end - shorter.start < 19


def test_a_context_without_tokens_has_no_answer() -> None:
    assert answers_of([window()], 30) == Answers([], 1.0)


def test_large_logits_do_not_overflow() -> None:
    found = answers_of([window((4e4, 4e4), first=-40_000)], 30)
    assert found.spans[0].score == 1.0
    assert found.no_answer_score == 0.0


@pytest.mark.parametrize("scores", [(5, 4), (4, 5)], ids=["first is best", "second is best"])
def test_answers_that_touch_are_both_given(scores: tuple[int, int]) -> None:
    """Two tokens without a space between: one answer ends at the character where one begins."""
    logits = np.array([(1, 0), (0, 0), *((score, score) for score in scores)], np.float32)
    offsets = np.array([(0, 0), (0, 0), (0, 3), (3, 5)])
    touching = Window(logits, offsets, np.arange(4) >= 2)
    found = answers_of([touching], max_answer_tokens=1, count=2).spans
    assert sorted((answer.start, answer.end) for answer in found) == [(0, 3), (3, 5)]
