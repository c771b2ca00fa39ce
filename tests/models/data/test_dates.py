"""Dates: every form is one way to write a date, and those that are tested were never trained on."""

import random
from datetime import date

import pytest
from tokenizers import Tokenizer

from models.data.generated.dates import (
    CASES,
    FIRST,
    LAST,
    MONTHS,
    date_pairs,
    ordinal,
    patterns,
    split_patterns,
    written,
)
from models.data.pair_tokenizer import END_ID, PAD_ID, START_ID, train_pair_tokenizer
from models.recipes.seq2seq_settings import Seq2SeqSettings
from models.recipes.seq2seq_systems import prepare


def test_several_thousand_forms_and_none_twice() -> None:
    """2,368 patterns in 3 letter cases."""
    found = patterns()
    assert len(found) == len(set(found)) == 2_368
    assert len(found) * len(CASES) == 7_104


def test_held_out_forms_are_a_tenth_and_never_trained_on() -> None:
    """Whatever the letters' case: it is the pattern that is held out."""
    trained, tested = split_patterns(0)
    assert sorted(trained + tested) == sorted(patterns())
    assert not set(trained) & set(tested)
    assert len(tested) == 236
    assert split_patterns(0) == (trained, tested)
    assert split_patterns(1)[1] != tested


def test_pairs_of_the_two_sides_are_written_in_the_forms_of_their_side_alone() -> None:
    """What is tested no trained form could have written, as {d} would where {d:02} writes 12."""
    settings = Seq2SeqSettings(network="transformer", samples=100, test_samples=100)
    pairs, completed = prepare("dates", settings)
    assert (len(pairs.train), len(pairs.test)) == (100, 100)
    trained, tested = split_patterns(0)
    for pair in (*pairs.train, *pairs.test):
        day = date.fromisoformat(pair.target)
        by_trained, by_tested = (
            {case(written(pattern, day)) for pattern in side for case in CASES}
            for side in (trained, tested)
        )
        is_tested = pair in pairs.test
        assert pair.source in (by_tested if is_tested else by_trained)
        assert not (is_tested and pair.source in by_trained)
    assert pairs == prepare("dates", completed)[0]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("{wd}. {d}{th} of {month} '{yy:02}", "Wed. 3rd of March '21"),
        ("on {weekday}, {month} {d}, {y}", "on Wednesday, March 3, 2021"),
        ("the {d}{th} {mon}. {yy:02}", "the 3rd Mar. 21"),
        ("{d:02}.{m:02}.{y}", "03.03.2021"),
        ("{y}{m:02}{d:02}", "20210303"),
    ],
)
def test_a_pattern_is_filled_as_people_write_it(pattern: str, expected: str) -> None:
    assert written(pattern, date(2021, 3, 3)) == expected


def test_a_form_says_one_date_only() -> None:
    """No two dates of a hundred years are written alike in any form: what is asked can be known.

    Of each pattern 40 dates, all of whose spellings are compared with those of the day and month
    swapped and of the centuries before and after.
    """
    generator = random.Random(0)  # noqa: S311 - to reproduce
    for pattern in patterns():
        seen: dict[str, date] = {}
        for _ in range(40):
            day = date.fromordinal(generator.randint(FIRST.toordinal(), LAST.toordinal()))
            others = [day.replace(day=day.month, month=day.day)] if day.day <= 12 else []
            for each in (day, *others):
                assert seen.setdefault(written(pattern, each), each) == each


def test_short_years_are_within_a_hundred() -> None:
    assert (LAST.year - FIRST.year, FIRST.month, LAST.month) == (99, 1, 12)
    (pair,) = date_pairs(["{d} {mon} {yy:02}"], 1, random.Random(0))  # noqa: S311
    day, month, year = pair.source.split()
    assert pair.target.endswith(f"-{int(day):02}")
    assert MONTHS[int(pair.target[5:7]) - 1][:3].lower() == month.lower()
    assert pair.target[:4] == f"{2000 + int(year) if int(year) < 70 else 1900 + int(year)}"


def test_ordinals() -> None:
    wanted = {1: "st", 2: "nd", 3: "rd", 4: "th", 11: "th", 12: "th", 13: "th", 21: "st", 31: "st"}
    assert {day: ordinal(day) for day in wanted} == wanted


# --- the tokenizer of both sides ------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    pairs = date_pairs(patterns(), 500, random.Random(0))  # noqa: S311
    return train_pair_tokenizer([text for pair in pairs for text in pair], 400)


def test_every_text_ends_with_the_end_and_comes_back(tokenizer: Tokenizer) -> None:
    for text in ("3rd of March '21", "déjà vu 🎉", "2021-03-03", " two  spaces "):
        ids = tokenizer.encode(text).ids
        assert ids[-1] == END_ID
        assert not {PAD_ID, START_ID, END_ID} & set(ids[:-1])
        assert tokenizer.decode(ids) == text
    assert tokenizer.get_vocab_size() <= 400


def test_a_digit_is_a_token_and_so_is_a_word_of_the_texts(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("on 03 September 2021").tokens
    assert [token for token in tokens if any(map(str.isdigit, token))] == list("032021")
    assert tokens[0] == "on"
