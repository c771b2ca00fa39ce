"""Which sentences may be held out: never all of those that have a type."""

import random
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.tagged import OUTSIDE, TaggedDataset, TaggedSentence
from models.errors import DatasetError
from models.remarks import DataWarning

TYPES = ("person", "place", "prize", "month")


def dataset_of(types: list[set[str]]) -> TaggedDataset:
    sentences = []
    for line, kinds in enumerate(types, start=1):
        tags = [OUTSIDE, *(f"B-{kind}" for kind in sorted(kinds))]
        sentences.append(TaggedSentence(line, tuple(f"w{line}" for _ in tags), tuple(tags)))
    return TaggedDataset("tags.conll", tuple(sentences))


@given(
    st.lists(st.sets(st.sampled_from(TYPES)), min_size=10, max_size=40),
    st.sampled_from([(0.1, 0.0), (0.2, 0.2), (0.5, 0.3)]),
    st.integers(0, 5),
)
def test_what_is_trained_on_has_every_type(
    types: list[set[str]], fractions: tuple[float, float], seed: int
) -> None:
    """Every sentence is in one part, and each part has about its share."""
    data = dataset_of(types)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        try:
            train, *held_out = data.split(fractions, seed)
        except DatasetError:
            assert any(fractions), "nothing could be left to judge by"
            return
    assert train.types() == data.types()
    lines = [each.line for part in (train, *held_out) for each in part.examples]
    assert sorted(lines) == list(range(1, len(types) + 1))
    for part, fraction in zip(held_out, fractions, strict=True):
        assert bool(len(part)) == bool(fraction)
        assert len(part) <= max(1, round(len(types) * fraction))


def test_the_only_sentence_of_a_type_is_trained_on_with_a_remark() -> None:
    """Whatever the seed: one of twenty sentences has the type month."""
    kinds: list[set[str]] = [{"person"}] * 20
    kinds[random.Random(0).randrange(20)] = {"month"}  # noqa: S311 - to reproduce
    data, remarks = dataset_of(kinds), 0
    for seed in range(10):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train, _ = data.split([0.4], seed)
        assert "month" in train.types()
        remarks += len(caught)
        for each in caught:
            assert "the first is 'month', in the sentence of line" in str(each.message)
    assert remarks, "the sentence was drawn at least once"


def test_sentences_that_are_all_the_only_ones_of_a_type_cannot_be_judged_by() -> None:
    data = dataset_of([{kind} for kind in TYPES])
    with pytest.raises(DatasetError, match="add sentences, or give files of their own"):
        data.split([0.25], 0)
