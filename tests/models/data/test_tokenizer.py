"""The tokenizer of a checkpoint: with no limits of its own, whichever file it comes from."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer

from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.data.tokenizer import load_tokenizer
from models.errors import CheckpointError


def test_padding_and_truncation_are_switched_off(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.enable_padding(length=8)
    tokenizer.enable_truncation(4)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tmp_path)
    assert len(loaded.encode("free")) == 3
    assert len(loaded.encode("free cash now the a")) == 7


def test_a_vocabulary_alone_makes_a_word_piece_tokenizer(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "free", "cash", "##es"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    tokens = ["[CLS]", "free", "cash", "##es", "[SEP]"]
    assert load_foreign_tokenizer(tmp_path).encode("Free cashes").tokens == tokens

    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert load_foreign_tokenizer(tmp_path).encode("Free").tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_a_folder_with_neither_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing: expected the file"):
        load_tokenizer(tmp_path)
