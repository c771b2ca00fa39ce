"""From labels of tokens to entities: broken sequences, words of several tokens, offsets."""

from itertools import accumulate, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from transformers.pipelines.token_classification import (
    AggregationStrategy,
    TokenClassificationPipeline,
)

from models.data.tagged import entities_of as entities_of_tags
from service.serving.tasks.entities import (
    AGGREGATIONS,
    BY_TOKEN,
    Entity,
    Words,
    entities_of,
    labelled_words,
    probabilities_of,
    words_of,
)
from service.serving.tasks.task import softmax

LABELS = ("O", "B-a", "I-a", "B-b", "I-b")
LOGIT = st.floats(-4, 4, width=32)


def sure(*labels: str) -> np.ndarray:
    """Probabilities of tokens with these labels, 1 each."""
    return np.eye(len(LABELS), dtype=np.float32)[[LABELS.index(label) for label in labels]]


def one_token_each(count: int) -> Words:
    """Word i is token i and character 2 i."""
    return Words([[i] for i in range(count)], [(2 * i, 2 * i + 1) for i in range(count)])


def test_each_token_has_one_word_and_one_place() -> None:
    with pytest.raises(ValueError, match="shorter"):
        words_of([0, 1], [(0, 3)], "one two")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O O", []),
        ("B-a I-a O B-b", [("a", 0, 3), ("b", 6, 7)]),
        ("B-a B-a", [("a", 0, 1), ("a", 2, 3)]),
        ("O I-a I-a", [("a", 2, 5)]),  # begins with I-
        ("B-a I-b", [("a", 0, 1), ("b", 2, 3)]),  # the type changes inside
        ("I-a O I-a", [("a", 0, 1), ("a", 4, 5)]),
        ("I-b B-b I-b", [("b", 0, 1), ("b", 2, 5)]),
    ],
)
def test_broken_sequences_have_entities_too(
    labels: str, expected: list[tuple[str, int, int]]
) -> None:
    tags = labels.split()
    found = entities_of(sure(*tags), LABELS, one_token_each(len(tags)))
    assert [(entity.label, entity.start, entity.end) for entity in found] == expected
    assert all(entity.score == 1.0 for entity in found)


def test_serving_finds_what_training_is_judged_by() -> None:
    """All sequences of four labels: entities are those that entity F1 counts."""
    for tags in product(LABELS, repeat=4):
        found = entities_of(sure(*tags), LABELS, one_token_each(4))
        wanted = [(e.type, 2 * e.start, 2 * e.end - 1) for e in entities_of_tags(tags)]
        assert [(e.label, e.start, e.end) for e in found] == wanted, tags


def test_labels_may_be_types_alone() -> None:
    labels = ("O", "PER", "LOC")
    found = entities_of(np.eye(3, dtype=np.float32)[[1, 1, 0, 1, 2]], labels, one_token_each(5))
    assert [(e.label, e.start, e.end) for e in found] == [
        ("PER", 0, 3),
        ("PER", 6, 7),
        ("LOC", 8, 9),
    ]


def test_the_score_is_the_mean_over_words_of_the_probability_of_their_tag() -> None:
    """0.5 of the first word for B-a and 0.75 of the second for I-a, not what both tags have."""
    probabilities = np.array([[0.25, 0.5, 0.25, 0, 0], [0.25, 0, 0.75, 0, 0]], np.float32)
    assert entities_of(probabilities, LABELS, one_token_each(2)) == [Entity("a", 0, 3, 0.625)]


class Pipeline(TokenClassificationPipeline):
    """transformers' own, without a model: its tags, and tokens that are joined by spaces."""

    def __init__(self) -> None:
        self.model: Any = SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(LABELS))))
        self.tokenizer: Any = SimpleNamespace(convert_tokens_to_string=" ".join)


@given(
    arrays(np.float32, st.tuples(st.integers(1, 6), st.just(len(LABELS))), elements=LOGIT),
    st.lists(st.booleans(), min_size=6, max_size=6),
    st.sampled_from(AGGREGATIONS[1:]),
)
def test_entities_and_scores_are_those_of_transformers(
    logits: np.ndarray, goes_on: list[bool], aggregation: str
) -> None:
    """Of any probabilities, for words of one token and of several, by each aggregation."""
    probabilities = softmax(logits)
    tokens = [
        {
            "word": str(place),
            "scores": scores,
            "start": 2 * place,
            "end": 2 * place + 1,
            "index": place,
            "is_subword": place > 0 and goes_on[place],
        }
        for place, scores in enumerate(probabilities)
    ]
    strategy = AggregationStrategy(aggregation)
    expected: list[Any] = [
        (each["entity_group"], each["start"], each["end"], pytest.approx(float(each["score"])))
        for each in Pipeline().aggregate(tokens, strategy)
        if each["entity_group"] != "O"
    ]
    is_by_token = aggregation in BY_TOKEN
    word_ids = list(accumulate(is_by_token or not joined for joined in goes_on[: len(tokens)]))
    offsets = [(2 * place, 2 * place + 1) for place in range(len(tokens))]
    words = words_of(word_ids, offsets, "x " * len(tokens))
    found = entities_of(probabilities_of(probabilities, words, aggregation), LABELS, words)
    assert [(e.label, e.start, e.end, e.score) for e in found] == expected


def test_a_word_is_what_its_first_token_says() -> None:
    """In `[CLS] al ##ber is [SEP]` the second token says b, which is not used."""
    text = "Alber is"
    words = words_of([None, 0, 0, 1, None], [(0, 0), (0, 2), (2, 5), (6, 8), (0, 0)], text)
    assert words == Words([[1, 2], [3]], [(0, 5), (6, 8)])
    of_words = probabilities_of(sure("O", "B-a", "B-b", "O", "B-b"), words)
    found = entities_of(of_words, LABELS, words)
    assert found == [Entity("a", 0, 5, 1.0)]


def test_the_space_before_a_word_is_not_of_the_entity() -> None:
    """Tokenizers of bytes count it to the token."""
    text = "in Łódź 😀 x"
    words = words_of([0, 1, 1, 2, 3], [(0, 2), (2, 5), (5, 7), (7, 9), (9, 11)], text)
    of_words = probabilities_of(sure("O", "B-a", "O", "I-a", "O"), words)
    (entity,) = entities_of(of_words, LABELS, words)
    assert text[entity.start : entity.end] == "Łódź 😀"


def test_tokens_without_characters_are_no_words() -> None:
    words = words_of([0, 1], [(0, 0), (0, 3)], "abc")
    assert words == Words([[1]], [(0, 3)])
    nothing = words_of([None, None], [(0, 0), (0, 0)], "")
    of_words = probabilities_of(softmax(np.ones((2, 5), np.float32)), nothing)
    assert entities_of(of_words, LABELS, nothing) == []


def test_a_text_without_words_has_no_entities() -> None:
    """Its special tokens are of no word, whatever their labels."""
    of_words = probabilities_of(sure("B-a", "I-a"), Words([], []))
    assert entities_of(of_words, LABELS, Words([], [])) == []


def test_a_word_of_several_tokens_has_the_probabilities_that_its_aggregation_names() -> None:
    """Tokens of one word give 0.5 and 0.1 to O, 0.3 and 0.9 to a, 0.2 and 0 to b."""
    tokens = np.array([[0.5, 0.3, 0.2], [0.1, 0.9, 0]], np.float32)
    word = Words([[0, 1]], [(0, 5)])
    assert probabilities_of(tokens, word, "first").tolist() == [tokens[0].tolist()]
    assert probabilities_of(tokens, word, "max").tolist() == [tokens[1].tolist()]
    assert probabilities_of(tokens, word, "average")[0] == pytest.approx([0.3, 0.6, 0.1])


def test_words_that_are_not_joined_have_their_whole_labels() -> None:
    found = labelled_words(sure("B-a", "O", "I-a"), LABELS, one_token_each(3))
    assert found == [Entity("B-a", 0, 1, 1.0), Entity("I-a", 4, 5, 1.0)]
