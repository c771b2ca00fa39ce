"""The trained tokenizer: every text round-trips, and no text contains an end of text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from models.data.byte_pairs import end_of_text_id, token_stream, train_tokenizer
from models.errors import CheckpointError

TEXTS = ["the cat sat on the mat, and the cat is on the mat still.\n"] * 3
TRAINED = train_tokenizer(TEXTS, 300)


@given(st.text())
def test_every_text_comes_back_from_its_tokens(text: str) -> None:
    ids = TRAINED.encode(text, add_special_tokens=False).ids
    assert TRAINED.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " two  spaces",
        "tab\tand\r\nline",
        "gr\u00fc\u00dfe \u65e5\u672c",
        "\U0001f642\U0001f3fd\u200d\U0001f680",
    ],
)
def test_spaces_other_scripts_and_emoji_come_back(text: str) -> None:
    assert TRAINED.decode(TRAINED.encode(text).ids) == text


def test_frequent_words_are_one_token_and_the_vocabulary_has_its_limit() -> None:
    assert TRAINED.get_vocab_size() <= 300
    assert len(TRAINED.encode(" cat").ids) == 1
    assert train_tokenizer(TEXTS, 257).get_vocab_size() == 257  # bytes and the end of text


def test_a_stream_has_each_document_and_the_end_of_text_after_it() -> None:
    stream = token_stream(["the cat", "a \u00e9"], TRAINED).tolist()
    end = end_of_text_id(TRAINED)
    assert stream.count(end) == 2
    assert stream[-1] == end
    first = stream.index(end)
    assert TRAINED.decode(stream[:first]) == "the cat"
    assert TRAINED.decode(stream[first + 1 : -1]) == "a \u00e9"


def test_an_end_of_text_that_is_spelt_out_is_ordinary_text() -> None:
    stream = token_stream(["a<|endoftext|>b"], TRAINED).tolist()
    assert stream.count(end_of_text_id(TRAINED)) == 1
    assert TRAINED.decode(stream[:-1]) == "a<|endoftext|>b"


def test_a_tokenizer_without_an_end_of_text_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(CheckpointError, match=r"no token <\|endoftext\|>"):
        token_stream(["the cat"], tokenizer)
