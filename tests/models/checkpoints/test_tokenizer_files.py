"""Tokenizers of folders without tokenizer.json give the tokens of the libraries of their files.

The tokens were recorded by `python -m tests.checkpoints.recorded_tokenizers`.
"""

import base64
import json
from pathlib import Path

import pytest

from export.certificates.probes import PAIRS, PROBES
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.data.byte_ranks import ByteRanks
from models.data.sentence_piece import SentencePiece, model_class
from models.errors import CheckpointError
from tests.checkpoints.recorded_tokenizers import FOLDERS, RECORDED, SAVED, Folder, checksum

SPELLED = "[CLS] [SEP] [MASK] [PAD] <s> </s> <pad> <unk>"  # a file's own library has no specials


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.filterwarnings("ignore:.*texts begin with:UserWarning")
def test_the_files_of_a_folder_give_the_tokens_of_their_library(name: str, tmp_path: Path) -> None:
    """200 texts and, where transformers puts tokens around pairs, ten pairs."""
    recorded = json.loads(RECORDED.read_text())[name]
    tokenizer = load_foreign_tokenizer(FOLDERS[name].write(tmp_path / "folder"))
    assert tokenizer.encode(PROBES[0]).ids == recorded["first"]
    is_alone = FOLDERS[name].begin is not None
    for text, expected in zip(PROBES, recorded["texts"], strict=True):
        if not is_alone or (text != SPELLED and "<|" not in text):
            assert checksum(tokenizer.encode(text).ids) == expected, text
    for pair, expected in zip(PAIRS, recorded.get("pairs", ()), strict=not is_alone):
        assert checksum(tokenizer.encode(*pair).ids) == expected, pair


@pytest.mark.filterwarnings("ignore:.*texts begin with:UserWarning")
@pytest.mark.parametrize("name", ["llama", "mistral", "gemma", "tekken", "unigram by bytes"])
def test_what_has_bytes_for_all_comes_back_from_its_tokens(name: str, tmp_path: Path) -> None:
    tokenizer = load_foreign_tokenizer(FOLDERS[name].write(tmp_path / "folder"))
    for text in ("Zwölf Boxkämpfer, 3.14!", "\U0001f600 of bytes", "a\u0416b"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_file_that_does_not_say_how_texts_begin_is_taken_with_a_line(tmp_path: Path) -> None:
    folder = FOLDERS["mistral, numbered"].write(tmp_path / "folder")
    with pytest.warns(UserWarning, match=r"tokenizer\.model\.v3: texts begin with <s>"):
        load_foreign_tokenizer(folder)


def test_files_that_make_no_tokenizer_are_refused_by_name(tmp_path: Path) -> None:
    unsplit = Folder("ranks.tiktoken", "other.tiktoken", "gpt2", {"tokenizer_class": "Own"})
    cases = {
        r"other\.tiktoken does not say how texts are split": unsplit.write(tmp_path / "unsplit"),
        r"tokenizer\.model is no model of SentencePiece": FOLDERS["mistral"].write(tmp_path / "no"),
        r"tekken\.json.* \['vocab'\]|tekken\.json.*vocab": FOLDERS["tekken"].write(tmp_path / "t"),
        r"tokenizer\.json is missing: .*tekken\.json, tokenizer\.model": tmp_path / "bare",
    }
    (tmp_path / "no/tokenizer.model").write_bytes(b"no model")
    stated = json.loads((SAVED / "tekken.json").read_text())
    (tmp_path / "t/tekken.json").write_text(json.dumps({"config": stated["config"]}))
    (tmp_path / "bare").mkdir()
    for message, folder in cases.items():
        with pytest.raises(CheckpointError, match=message):
            load_foreign_tokenizer(folder)


def test_a_number_of_tokens_for_gaps_that_t5_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = FOLDERS["mt5"].write(tmp_path / "folder")
    for number in (101, -1, "two"):
        settings = {"tokenizer_class": "T5Tokenizer", "extra_ids": number}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        with pytest.raises(CheckpointError, match=r"extra_ids is .*, but must be at most 100"):
            load_foreign_tokenizer(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("default_num_special_tokens", 10**12),
        ("default_num_special_tokens", -1),
        ("default_vocab_size", 29),
        ("default_vocab_size", "many"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*texts begin with:UserWarning")
def test_numbers_of_tokens_that_no_file_has_are_refused(
    field: str, value: object, tmp_path: Path
) -> None:
    """30 of the tokens are special, so that 29 would be a negative number of others."""
    folder = FOLDERS["tekken"].write(tmp_path / "folder")
    stated = json.loads((SAVED / "tekken.json").read_text())
    stated["config"][field] = value
    (folder / "tekken.json").write_text(json.dumps(stated))
    with pytest.raises(CheckpointError, match=rf"tekken\.json: {field} is .*, but must be a whole"):
        load_foreign_tokenizer(folder)


def test_tokens_whose_merges_would_take_hours_are_refused(tmp_path: Path) -> None:
    """The time grows with the square of a token's length, which a file may choose."""
    ranks = tmp_path / "ranks.tiktoken"
    ranks.write_bytes(base64.b64encode(b"a" * 1025) + b" 0\n")
    with pytest.raises(CheckpointError, match="has a token of 1025 bytes, but must have at most"):
        ByteRanks.of_tiktoken(ranks)
    model = model_class()()
    model.pieces.add(piece="a" * 1025)
    (tmp_path / "tokenizer.model").write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match="has a piece of 1025 characters, but must have"):
        SentencePiece.read(tmp_path / "tokenizer.model")


def test_a_file_of_no_ranks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ranks.tiktoken").touch()
    with pytest.raises(CheckpointError, match="the ranks of 0 tokens are not 0, 1, 2"):
        ByteRanks.of_tiktoken(tmp_path / "ranks.tiktoken")
