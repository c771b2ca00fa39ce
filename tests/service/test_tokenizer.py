"""Texts to ids: whole or cut, never padded, and refused with both numbers."""

from pathlib import Path

import pytest
import tokenizers

from service.errors import InvalidArgument, LoadError
from service.tokenizer import TextTokenizer
from tests.fakes import token_ids, write_tokenizer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_tokenizer(tmp_path / "tokenizer.json")
    return tmp_path / "tokenizer.json"


@pytest.fixture
def tokenizer(path: Path) -> TextTokenizer:
    """Takes 6 tokens, that is 4 words, and 40 characters."""
    return TextTokenizer(path, 6, 40)


def test_rows_come_back_as_long_as_their_texts(tokenizer: TextTokenizer) -> None:
    texts = ["win a prize", "", "sorry unheard now"]
    rows = tokenizer.encode(texts, can_truncate=False)
    assert [row.input_ids.tolist() for row in rows] == [[token_ids(text)] for text in texts]
    assert [row.num_tokens for row in rows] == [5, 2, 5]
    for row in rows:
        assert row.input_ids.dtype == row.token_type_ids.dtype == "int64"
        assert row.token_type_ids.tolist() == [[0] * row.num_tokens]
        assert not row.is_truncated


def test_a_text_of_exactly_the_limit_is_not_cut(tokenizer: TextTokenizer) -> None:
    (row,) = tokenizer.encode(["win a free prize"], can_truncate=True)
    assert row.num_tokens == 6
    assert not row.is_truncated


def test_a_text_that_is_too_long_is_refused_with_both_numbers(tokenizer: TextTokenizer) -> None:
    with pytest.raises(InvalidArgument) as caught:
        tokenizer.encode(["a prize", "win a free prize now"], can_truncate=False)
    assert str(caught.value) == (
        "text 1 has 7 tokens, the model takes at most 6: shorten it, or ask for truncation"
    )


def test_a_cut_text_keeps_its_last_special_token(tokenizer: TextTokenizer) -> None:
    (row,) = tokenizer.encode(["win a free prize now the lunch"], can_truncate=True)
    assert row.input_ids.tolist() == [token_ids("win a free prize")]
    assert row.is_truncated


def test_padding_and_truncation_of_the_file_are_switched_off(path: Path) -> None:
    """Files of the Hub often say to cut at 128 and to pad: the request and the batch decide."""
    stored = tokenizers.Tokenizer.from_file(str(path))
    stored.enable_truncation(3)
    stored.enable_padding(length=16)
    stored.save(str(path))
    tokenizer = TextTokenizer(path, 6, 40)
    (row,) = tokenizer.encode(["win a prize"], can_truncate=False)
    assert row.input_ids.tolist() == [token_ids("win a prize")]
    assert tokenizer.pieces("win a prize").ids == token_ids("win a prize")


def test_the_size_of_texts_is_bounded_before_any_work(tokenizer: TextTokenizer) -> None:
    assert tokenizer.check_sizes(["a" * 40, "b" * 2]) == 42
    with pytest.raises(InvalidArgument) as caught:
        tokenizer.check_sizes(["a", "b" * 41])
    assert str(caught.value) == "text 1 has 41 characters, the server takes at most 40"


def test_pieces_say_where_they_stand_in_the_text(tokenizer: TextTokenizer) -> None:
    """Offsets in code points, also behind letters of several bytes; any length."""
    found = tokenizer.pieces("free \N{PARTY POPPER}\u00e9 lunch now now now now")
    assert found.pieces[:2] == ["[CLS]", "free"]
    start, end = found.offsets[found.pieces.index("lunch")]
    assert (start, end) == (8, 13)
    assert found.offsets[0] == found.offsets[-1] == (0, 0)
    assert len(found.ids) == len(found.pieces) == len(found.offsets) > 6


@pytest.mark.parametrize("text", ["", "{}", "not json"])
def test_a_broken_file_is_a_load_error_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(LoadError, match=r"^tokenizer\.json: "):
        TextTokenizer(tmp_path / "tokenizer.json", 6, 40)


def test_a_missing_file_is_a_load_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"^tokenizer\.json: "):
        TextTokenizer(tmp_path / "tokenizer.json", 6, 40)
