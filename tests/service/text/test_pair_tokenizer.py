"""A query and its documents to ids: only documents are cut, as the library cuts them."""

from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from service.contract.manifest import DOCUMENT_PLACE, QUERY_PLACE
from service.errors import InputTooLong, InvalidArgument
from service.text.pair_tokenizer import PairTokenizer, QueriedDocuments, TemplatePairTokenizer
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


# --- in a template --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def templated(path: Path) -> TemplatePairTokenizer:
    """Two special tokens leave 10 of 12; the template has 2 words of its own."""
    template = f"now {QUERY_PLACE} a {DOCUMENT_PLACE}"
    return TemplatePairTokenizer(path, MAX_TOKENS, MAX_CHARACTERS, template)


def test_a_pair_is_one_text_of_its_template(templated: TemplatePairTokenizer) -> None:
    rows = templated.encode([("win", "prize"), ("sorry", "")], can_truncate=False)
    expected = [token_ids("now win a prize"), token_ids("now sorry a")]
    assert [row.input_ids.tolist() for row in rows] == [[ids] for ids in expected]
    assert not any(row.token_type_ids.any() or row.is_truncated for row in rows)


@pytest.mark.parametrize(("most", "kept"), [(0, 7), (2, 2), (7, 7), (100, 7)])
def test_documents_of_a_template_are_cut_to_their_tokens_within_its_room(
    templated: TemplatePairTokenizer, most: int, kept: int
) -> None:
    texts = QueriedDocuments("win", ["prize " * 20, "now"], most)
    long, short = templated.encode(texts, can_truncate=True)
    assert long.input_ids.tolist() == [token_ids("now win a " + "prize " * kept)]
    assert (long.is_truncated, short.is_truncated) == (True, False)


def test_a_pair_beyond_its_template_s_room_is_refused_or_cut(
    templated: TemplatePairTokenizer,
) -> None:
    """A document of 8 words, where 7 have room: 13 tokens in all."""
    pair = ("win", "prize " * 8)
    with pytest.raises(InputTooLong, match="13 tokens"):
        templated.encode([("win", "now"), pair], can_truncate=False)
    assert templated.encode([("win", "prize " * 7)], can_truncate=False)[0].is_truncated is False
    (row,) = templated.encode([pair], can_truncate=True)
    assert row.input_ids.tolist() == [token_ids("now win a " + "prize " * 7)]


def test_a_query_that_leaves_a_template_no_room_is_refused_by_its_place(
    templated: TemplatePairTokenizer,
) -> None:
    """With the template's words 10 tokens, of which 9 may stand in front of a document."""
    query = "win " * 8
    reason = "has with the model's template 10 tokens in front of a document, .* at most 9"
    with pytest.raises(InputTooLong, match=f"query {reason}"):
        templated.encode(QueriedDocuments(query, ["prize"]), can_truncate=True)
    with pytest.raises(InputTooLong, match=f"text 1 {reason}"):
        templated.encode([("win", "a"), (query, "prize")], can_truncate=True)
    assert templated.encode([("win " * 7, "prize")], can_truncate=True)


def test_a_template_takes_no_single_text(templated: TemplatePairTokenizer) -> None:
    with pytest.raises(InvalidArgument, match="text 1 is no pair"):
        templated.encode([("win", "a"), "prize"], can_truncate=False)
