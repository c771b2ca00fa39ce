"""Texts to ids: whole or cut, never padded, and refused with both numbers."""

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from service.contract.prompt_reading import PromptReading
from service.errors import InvalidArgument, LoadError
from service.text import tokenizer as tokenizer_module
from service.text.pair_tokenizer import PairTokenizer, QueriedDocuments
from service.text.tokenizer import (
    PromptTokenizer,
    SourceAndTargetTokenizer,
    TextTokenizer,
    TokenRows,
    check_table,
)
from tests.fakes.sessions import token_ids, write_tokenizer


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


def test_a_text_without_tokens_is_refused(path: Path) -> None:
    """As nothing begins or ends texts here; a graph could not take a row of none."""
    plain = json.loads(path.read_text())
    plain["post_processor"] = None
    path.write_text(json.dumps(plain))
    with pytest.raises(InvalidArgument, match="text 1 has no tokens"):
        TextTokenizer(path, 6, 40).encode(["win", " "], can_truncate=False)


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


def test_pieces_of_tokens_have_no_place_in_a_text(path: Path) -> None:
    stored = tokenizers.Tokenizer.from_file(str(path))
    stored.add_special_tokens(["[CLS]", "[SEP]"])
    stored.save(str(path))
    tokenizer = TextTokenizer(path, 6, 40)
    ids = token_ids("win unheard")
    found = tokenizer.pieces_of(ids)
    assert (found.ids, found.pieces) == (ids, ["[CLS]", "win", "[UNK]", "[SEP]"])
    assert found.offsets == [(0, 0)] * 4
    assert found.are_special == [True, False, False, True]
    assert found.are_unknown == [False, False, True, False]
    assert found.token_bytes == tokenizer.pieces("win unheard").token_bytes


def test_a_source_and_its_target_are_encoded_each_by_itself(path: Path) -> None:
    """Both may be cut; a text alone has no target."""
    tokenizer = SourceAndTargetTokenizer(path, 6, 400, has_encodings=True)
    long = "win a free prize now"
    pairs = [("win a prize", "free cash"), (long, "lunch"), ("lunch", long)]
    rows = tokenizer.encode(pairs, can_truncate=True)
    targets = [row.target for row in rows if row.target]
    assert [row.input_ids.tolist() for row in rows] == [
        [token_ids(text)] for text in ("win a prize", "win a free prize", "lunch")
    ]
    assert [target.input_ids.tolist() for target in targets] == [
        [token_ids(text)] for text in ("free cash", "lunch", "win a free prize")
    ]
    assert [row.is_truncated for row in rows] == [False, True, False]
    assert [target.is_truncated for target in targets] == [False, False, True]
    assert all(row.encoding and row.encoding.ids == row.input_ids[0].tolist() for row in rows)
    (alone,) = tokenizer.encode(["win a prize"], can_truncate=False)
    assert alone.input_ids.tolist() == [token_ids("win a prize")]
    assert alone.target is None
    assert tokenizer.encode([], can_truncate=False) == []


@pytest.mark.parametrize("pair", [("win", "win a free prize now"), ("win a free prize now", "win")])
def test_neither_part_of_a_pair_is_cut_unasked(path: Path, pair: tuple[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="text 0 has 7 tokens, the model takes at most 6"):
        SourceAndTargetTokenizer(path, 6, 400).encode([pair], can_truncate=False)


def test_unknown_words_are_named_as_the_text_spells_them(tokenizer: TextTokenizer) -> None:
    assert tokenizer.unknown_words("win Blarg the gl\u00efmp, free") == ["Blarg", "gl\u00efmp", ","]
    assert tokenizer.unknown_words("win the prize") == []


@pytest.mark.parametrize("text", ["", "{}", "not json"])
def test_a_broken_file_is_a_load_error_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(LoadError, match=r"^tokenizer\.json: "):
        TextTokenizer(tmp_path / "tokenizer.json", 6, 40)


def test_a_missing_file_is_a_load_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"^tokenizer\.json: "):
        TextTokenizer(tmp_path / "tokenizer.json", 6, 40)


END = "<|end|>"
SAMPLES = [
    "the cat sat on the mat",
    "\u00e9t\u00e9 \u00e0 la plage",
    "\u65e5\u672c\u8a9e \N{PARTY POPPER}",
]


def byte_tokenizer() -> Tokenizer:
    """Byte-level BPE of 300 tokens, as GPT-2's in all but size; id 0 is the end of text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=[END], show_progress=False
    )
    tokenizer.train_from_iterator(SAMPLES * 4, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def library() -> Tokenizer:
    return byte_tokenizer()


@pytest.fixture(scope="module")
def prompts(library: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> PromptTokenizer:
    """Takes 8 tokens and 200 characters."""
    path = tmp_path_factory.mktemp("prompts") / "tokenizer.json"
    library.save(str(path))
    return PromptTokenizer(path, 8, 200)


@given(
    text=st.text(
        st.characters(exclude_categories=["Cs"]) | st.sampled_from("e \u00e9\N{PARTY POPPER}")
    )
)
def test_the_bytes_of_tokens_are_those_of_the_text(
    library: Tokenizer, prompts: PromptTokenizer, text: str
) -> None:
    ids = library.encode(text).ids
    assert b"".join(prompts.token_bytes[token_id] for token_id in ids) == text.encode()


@given(data=st.data())
def test_any_tokens_decode_as_the_library_decodes_them(
    library: Tokenizer, prompts: PromptTokenizer, data: st.DataObject
) -> None:
    """Half characters and special tokens included."""
    ids = data.draw(st.lists(st.integers(0, library.get_vocab_size() - 1)))
    found = b"".join(prompts.token_bytes[token_id] for token_id in ids)
    assert found.decode("utf-8", "replace") == library.decode(ids)


def test_special_tokens_and_unused_ids_have_no_bytes_and_other_added_ones_their_text(
    tmp_path: Path,
) -> None:
    """Added tokens may hold characters that stand for bytes elsewhere, such as a space."""
    library = byte_tokenizer()
    library.add_special_tokens(["<|user|>"])
    library.add_tokens([AddedToken("  ", normalized=False), "\u65e5 \u672c"])
    library.save(str(tmp_path / "tokenizer.json"))
    token_bytes = PromptTokenizer(tmp_path / "tokenizer.json", 8, 200).token_bytes
    assert len(token_bytes) == library.get_vocab_size()
    for token in (END, "<|user|>", "  ", "\u65e5 \u672c"):
        token_id = library.get_vocab()[token]
        assert token_bytes[token_id].decode() == library.decode([token_id])


def test_a_gap_between_ids_is_of_no_bytes(tmp_path: Path) -> None:
    library = Tokenizer(models.BPE(vocab={"a": 0, "b": 3}, merges=[]))
    library.decoder = decoders.ByteLevel()
    library.save(str(tmp_path / "tokenizer.json"))
    assert PromptTokenizer(tmp_path / "tokenizer.json", 8, 200).token_bytes == (
        b"a",
        b"",
        b"",
        b"b",
    )


def test_a_prompt_becomes_one_row_of_ids(library: Tokenizer, prompts: PromptTokenizer) -> None:
    ids = prompts.encode(f"the cat{END}")
    assert ids.dtype == np.int64
    assert ids.tolist() == library.encode(f"the cat{END}").ids
    assert ids[-1] == 0


def test_a_prompt_that_is_too_long_or_empty_is_refused_with_the_counts(
    prompts: PromptTokenizer,
) -> None:
    assert prompts.encode("!" * 8).shape == (8,)
    for prompt, message in (
        ("!" * 9, "the prompt has 9 tokens, the model takes 1 to 8"),
        ("", "the prompt has 0 tokens, the model takes 1 to 8"),
        ("!" * 201, "the prompt has 201 characters, the server takes at most 200"),
    ):
        with pytest.raises(InvalidArgument) as caught:
            prompts.encode(prompt)
        assert str(caught.value) == message


def test_padding_and_truncation_of_the_file_do_not_touch_prompts(tmp_path: Path) -> None:
    library = byte_tokenizer()
    library.enable_truncation(2)
    library.enable_padding(length=6)
    library.save(str(tmp_path / "tokenizer.json"))
    assert len(PromptTokenizer(tmp_path / "tokenizer.json", 8, 200).encode("!?!?")) == 4


def test_a_tokenizer_whose_tokens_are_not_bytes_cannot_generate(path: Path) -> None:
    with pytest.raises(LoadError, match=r"^tokenizer\.json: its decoder is .*needs ByteLevel"):
        PromptTokenizer(path, 8, 200)


def test_a_text_is_cut_on_the_side_that_its_file_says(path: Path) -> None:
    """Whether its words are known or the library reads it, and as tokens too."""
    library = Tokenizer.from_file(str(path))
    library.enable_truncation(2**31 - 1, direction="left")
    library.save(str(path))
    text = "win a free prize now later"
    start, *words, end = token_ids(text)
    tokenizer = TextTokenizer(path, 6, 100)
    (row,) = tokenizer.encode([text], can_truncate=True)
    assert row.input_ids.tolist() == [[start, *words[-4:], end]]
    assert row.is_truncated
    (row,) = tokenizer.take(TokenRows([[start, *words, end]]), can_truncate=True)
    assert row.input_ids.tolist() == [[*words[-5:], end]]
    pair = QueriedDocuments("win", [text])
    (row,) = PairTokenizer(path, 6, 100).encode(pair, can_truncate=True)
    assert words[-1] in row.input_ids
    assert words[1] not in row.input_ids


@pytest.fixture
def longer(tmp_path: Path) -> tuple[Path, int]:
    """A file with two tokens that were added, and the tokens without them."""
    library = byte_tokenizer()
    num_rows = library.get_vocab_size()
    library.add_special_tokens(["<|new|>"])
    library.add_tokens(["brandnew"])
    library.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json", num_rows


def test_a_prompt_with_a_token_that_the_model_does_not_know_is_refused(
    longer: tuple[Path, int],
) -> None:
    path, num_rows = longer
    prompts = PromptTokenizer(path, 40, 200, num_rows=num_rows)
    check_table(prompts, num_rows, "tokenizer.json")
    assert prompts.encode("the cat").max() < num_rows
    assert len(prompts.token_bytes) == num_rows
    for token, token_id in (("<|new|>", num_rows), ("brandnew", num_rows + 1)):
        expected = rf"the prompt has the token '{re.escape(token)}' \(id {token_id}\), which the"
        with pytest.raises(InvalidArgument, match=expected):
            prompts.encode(f"the {token} cat")
        assert max(prompts.encode_part(token)) < num_rows
    with pytest.raises(InvalidArgument, match="its table of tokens has"):
        prompts.encode_marked("the brandnew cat", "\0")


def test_a_table_without_a_row_for_the_tokens_of_texts_is_refused(
    longer: tuple[Path, int],
) -> None:
    path, num_rows = longer
    prompts = PromptTokenizer(path, 40, 200, num_rows=num_rows - 1)
    with pytest.raises(LoadError, match=f"has ids up to {num_rows + 1}, the model knows"):
        check_table(prompts, num_rows - 1, "tokenizer.json")
    library = Tokenizer.from_file(str(path))
    library.add_tokens([f"new{number}" for number in range(1_023)])
    library.save(str(path))
    with pytest.raises(LoadError, match=f"has ids up to {num_rows + 1_024}, the model knows"):
        check_table(PromptTokenizer(path, 40, 200, num_rows=num_rows), num_rows, "tokenizer.json")


WORDS = (
    "free",
    "prize",
    "caf\u00e9",
    "\u4e2d\u6587",
    "\U0001f600",
    "x" * 40,
    "...",
    "don't",
    "\n\n",
    "  ",
)
UNKNOWN = "[UNK]"


def _trained(kind: str) -> Tokenizer:
    """A tokenizer of each kind that folders have, trained on the words."""
    corpus = [" ".join(WORDS)] * 4
    if kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(special_tokens=[UNKNOWN], show_progress=False)
    elif kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(use_regex=kind == "bytes")
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=400, initial_alphabet=alphabet, show_progress=False
        )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bytes", "bytes without words"])
def test_a_text_that_is_cut_or_refused_by_its_beginning_is_as_if_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Of 200 texts of any words, many of them far beyond what the model takes."""
    monkeypatch.setattr(tokenizer_module, "BEGINNING_CHARACTERS", 500)
    monkeypatch.setattr(tokenizer_module, "CHARACTERS_PER_TOKEN", 4)
    monkeypatch.setattr(tokenizer_module, "SURPLUS_TOKENS", 45)  # "x" * 40 may be so many
    whole = _trained(kind)
    path = tmp_path / "tokenizer.json"
    whole.save(str(path))
    texts_of = TextTokenizer(path, 12, 10_000)
    draw = random.Random(5)  # noqa: S311 - the same each time
    num_begun = 0
    for _ in range(200):
        text = " ".join(draw.choices(WORDS, k=draw.randint(1, 400)))
        ids = whole.encode(text).ids
        is_begun = texts_of._beginning(text, 12) is not None
        num_begun += is_begun
        (row,) = texts_of.encode([text], can_truncate=True)
        assert row.input_ids[0].tolist() == ids[:12]
        assert row.is_truncated == (len(ids) > 12)
        if len(ids) > 12:
            expected = "more than 12" if is_begun else str(len(ids))
            with pytest.raises(InvalidArgument, match=f"text 0 has {expected} tokens, the model"):
                texts_of.encode([text], can_truncate=False)
    assert 50 < num_begun < 190


def test_a_prompt_far_beyond_what_the_model_takes_is_refused_by_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library reads 64 kB of a megabyte; what is cut is read whole, as its end may be kept."""
    path = tmp_path / "tokenizer.json"
    _trained("bytes").save(str(path))
    prompts = PromptTokenizer(path, 1_000, 2_000_000)
    long = "free caf\u00e9 " * 100_000
    read: list[int] = []
    encode = tokenizer_module._encoding

    def noting(tokenizer: Tokenizer, text: str, **options: Any) -> Any:
        read.append(len(text))
        return encode(tokenizer, text, **options)

    monkeypatch.setattr(tokenizer_module, "_encoding", noting)
    refused = "has more than 1000 tokens, the model takes 1"
    with pytest.raises(InvalidArgument, match=refused):
        prompts.encode(long)
    with pytest.raises(InvalidArgument, match=refused):
        prompts.encode_marked(long, "\x00")
    assert read == [2**15] * 2
    kept = prompts.encode(long, PromptReading(num_kept=5, max_tokens=1_000))
    assert kept.tolist() == prompts.whole.encode(long[-400:]).ids[-5:]
