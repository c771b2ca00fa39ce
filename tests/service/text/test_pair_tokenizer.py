"""A query and its documents to ids: only documents are cut, as the library cuts them."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from service.errors import InputTooLong, InvalidArgument
from service.text.pair_tokenizer import PairTokenizer, QueriedDocuments
from tests.fakes.sessions import token_ids, write_tokenizer

MAX_TOKENS, MAX_CHARACTERS = 12, 200
WORDS = ("win", "a", "prize", "sorry", "now", "unheard")
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "tokenizer.json"
    write_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> PairTokenizer:
    return PairTokenizer(path, MAX_TOKENS, MAX_CHARACTERS)


@given(query=st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join), document=TEXTS)
def test_rows_are_those_of_the_library_where_it_cuts_only_the_second_text(
    path: Path, tokenizer: PairTokenizer, query: str, document: str
) -> None:
    library = tokenizers.Tokenizer.from_file(str(path))
    whole = library.encode(query, document)
    library.enable_truncation(MAX_TOKENS, strategy="only_second")
    expected = library.encode(query, document)
    (row,) = tokenizer.encode(QueriedDocuments(query, [document]), can_truncate=True)
    assert row.input_ids.tolist() == [expected.ids]
    assert row.token_type_ids.tolist() == [expected.type_ids]
    assert row.is_truncated == (len(whole.ids) > MAX_TOKENS)


@pytest.mark.parametrize(("most", "kept"), [(0, 8), (1, 1), (3, 3), (100, 8)])
def test_documents_are_cut_to_a_number_of_tokens_within_the_room_beside_the_query(
    tokenizer: PairTokenizer, most: int, kept: int
) -> None:
    """One word of a query and three special tokens leave 8 of 12."""
    texts = QueriedDocuments("win", ["prize " * 20, "now"], most)
    long, short = tokenizer.encode(texts, can_truncate=True)
    ids = [*token_ids("win"), *token_ids("prize " * kept)[1:]]
    assert long.input_ids.tolist() == [ids]
    assert (long.is_truncated, short.is_truncated) == (True, False)


def test_documents_that_are_cut_to_what_fits_need_no_other_leave(tokenizer: PairTokenizer) -> None:
    """Beside the query there is room for 8 tokens."""
    document = "prize " * 20
    (row,) = tokenizer.encode(QueriedDocuments("win", [document], 8), can_truncate=False)
    assert (row.num_tokens, row.is_truncated) == (MAX_TOKENS, True)
    with pytest.raises(InputTooLong, match=r"^documents\[1\] with its query has 24 tokens, "):
        tokenizer.encode(QueriedDocuments("win", ["a", document], 9), can_truncate=False)


@pytest.mark.parametrize("can_truncate", [True, False])
def test_a_query_that_leaves_no_room_is_refused_by_its_name_and_not_cut(
    tokenizer: PairTokenizer, can_truncate: bool
) -> None:
    fitting = QueriedDocuments("win " * 8, ["now"])
    assert tokenizer.encode(fitting, can_truncate)[0].num_tokens == MAX_TOKENS
    with pytest.raises(InputTooLong) as caught:
        tokenizer.encode(QueriedDocuments("win " * 9, ["now"]), can_truncate)
    assert caught.value.field == "query"
    assert str(caught.value) == (
        "query has 9 tokens, the model takes at most 8 and a document: shorten it"
    )


def test_a_document_of_too_many_characters_is_refused_by_its_place(
    tokenizer: PairTokenizer,
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        tokenizer.check_sizes(QueriedDocuments("win", ["a", "x" * MAX_CHARACTERS]))
    assert caught.value.field == "documents[1]"
    assert str(caught.value) == (
        "documents[1] with its query has 203 characters, the server takes at most 200"
    )


def test_pairs_without_one_query_are_cut_in_the_longer_text(
    path: Path, tokenizer: PairTokenizer
) -> None:
    library = tokenizers.Tokenizer.from_file(str(path))
    library.enable_truncation(MAX_TOKENS)
    pair = "win a prize " * 4, "sorry"
    (row,) = tokenizer.encode([pair], can_truncate=True)
    assert row.input_ids.tolist() == [library.encode(*pair).ids]
