"""Ids from remembered words are the library's own, and other texts are left to it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from service.text import word_cache
from service.text.tokenizer import TextTokenizer
from service.text.word_cache import KnownWords, known_words

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
LETTERS = [*"abcxyz019", *(f"##{letter}" for letter in "abcxyz019"), *".,!?-_[]'", "cab", "##by"]
PIECES = [*"abcxyzABC019 \t\n.,!?-_[]'@", "cab", " Cabby ", "[SEP]", "[sep]", "a" * 101]
UNREAD = ["é", "\x00", "\x0b", "\x7f", "\u200b", "中"]  # what is not plainly ASCII


def bert(*, is_lowercased: bool = True) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *LETTERS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=is_lowercased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
    return tokenizer


def words_of(tokenizer: Tokenizer) -> KnownWords:
    words = known_words(tokenizer)
    assert words is not None, "it is BERT's"
    return words


@pytest.mark.parametrize("is_lowercased", [True, False])
def test_ids_are_the_librarys_own(is_lowercased: bool) -> None:
    tokenizer = bert(is_lowercased=is_lowercased)
    words = words_of(tokenizer)

    @given(st.lists(st.sampled_from([*PIECES, *UNREAD]), max_size=12))
    def check(pieces: list[str]) -> None:
        text = "".join(pieces)
        ids = words.ids_of(text)
        is_read_here = not any(each in text for each in UNREAD) and "[sep]" not in text.lower()
        assert (ids is not None) == is_read_here
        assert ids is None or ids == tokenizer.encode(text).ids

    check()


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.integers(3, 9))
def test_rows_of_a_text_are_the_same_with_and_without_remembered_words(
    tmp_path_factory: pytest.TempPathFactory, text: str, max_tokens: int
) -> None:
    path = tmp_path_factory.mktemp("bert") / "tokenizer.json"
    bert().save(str(path))
    (known,) = TextTokenizer(path, max_tokens, 10_000).encode([text], can_truncate=True)
    (read,) = TextTokenizer(path, max_tokens, 10_000, has_encodings=True).encode([text], True)
    assert known.input_ids.tolist() == read.input_ids.tolist()
    assert known.token_type_ids.tolist() == read.token_type_ids.tolist()
    assert known.input_ids.dtype == known.token_type_ids.dtype == "int64"
    assert known.is_truncated == read.is_truncated


def test_a_request_may_have_texts_of_both_kinds(tmp_path: Path) -> None:
    bert().save(str(tmp_path / "tokenizer.json"))
    texts = ["cab", "é cab", "", "[SEP] a", "a cab"]
    rows = TextTokenizer(tmp_path / "tokenizer.json", 16, 100).encode(texts, can_truncate=False)
    assert [row.input_ids[0].tolist() for row in rows] == [
        bert().encode(text).ids for text in texts
    ]


def test_a_word_is_asked_of_the_library_once() -> None:
    asked: list[str] = []

    def spell(words: object) -> list[word_cache.Ids]:
        assert isinstance(words, list)
        asked.extend(words)
        return [(7, len(word)) for word in words]

    words = KnownWords(spell, (2,), (3,), SPECIAL, is_lowercased=True)
    assert words.ids_of("A b, A") == [2, 7, 1, 7, 1, 7, 1, 7, 1, 3]
    assert words.ids_of("b a cc") == [2, 7, 1, 7, 1, 7, 2, 3]
    assert asked == ["a", "b", ",", "cc"]


def test_no_more_words_are_kept_than_the_bound() -> None:
    words = KnownWords(lambda new: [(1,)] * len(new), (), (), SPECIAL, is_lowercased=True)
    for start in range(0, 3 * word_cache.MAX_WORDS, 1_024):
        words.ids_of(" ".join(map(str, range(start, start + 1_024))))
        assert len(words) <= word_cache.MAX_WORDS
    assert len(words) > 0


def test_a_long_word_is_not_kept() -> None:
    words = words_of(bert())
    words.ids_of("a" * (word_cache.MAX_WORD + 1))
    assert len(words) == 0


@pytest.mark.parametrize("part", ["model", "normalizer", "pre_tokenizer", "post_processor"])
def test_other_tokenizers_read_every_text(part: str) -> None:
    tokenizer = bert()
    if part == "model":
        tokenizer.model = models.WordLevel({"[UNK]": 1, "a": 5}, "[UNK]")
    elif part == "normalizer":
        tokenizer.normalizer = normalizers.BertNormalizer(clean_text=False)
    elif part == "pre_tokenizer":
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        template = processors.TemplateProcessing("[CLS]:1 $A:1", None, [("[CLS]", 2)])
        tokenizer.post_processor = template
    assert known_words(tokenizer) is None
