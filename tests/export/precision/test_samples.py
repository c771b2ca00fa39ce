"""Which texts int8 finds its scales on."""

import pytest

from export.errors import ExportError
from export.precision.samples import CHECKED_SHARE, MIN_TEXTS, NUM_TEXTS, default_texts, sample_rows
from tests.fakes.tiny import tiny_tokenizer


def test_texts_are_at_hand_without_a_network() -> None:
    """Enough for a choice, half of them messages; none is empty."""
    texts = default_texts()
    assert len(texts) > 2 * NUM_TEXTS
    assert all(text.strip() for text in texts)
    assert texts == default_texts()


def test_what_is_checked_was_not_calibrated_on() -> None:
    """A quarter of 192 texts, all cut to what the model takes."""
    rows = sample_rows(tiny_tokenizer(), (), max_tokens=16)
    assert len(rows.checked) * CHECKED_SHARE == NUM_TEXTS
    assert len(rows.calibration) + len(rows.checked) == NUM_TEXTS
    assert {len(row) for row in rows.calibration} <= set(range(3, 17))


def test_texts_that_are_given_take_the_place_of_those_at_hand() -> None:
    texts = [f"call {number}" for number in range(MIN_TEXTS)]
    rows = sample_rows(tiny_tokenizer(), texts, max_tokens=16)
    expected = sorted(tiny_tokenizer().encode(text).ids for text in texts)
    assert sorted(rows.calibration + rows.checked) == expected


def test_too_few_texts_are_refused_with_both_numbers() -> None:
    with pytest.raises(ExportError, match=f"there are 3 texts .* at least {MIN_TEXTS}"):
        sample_rows(tiny_tokenizer(), ["a", "b", "c"], max_tokens=16)
