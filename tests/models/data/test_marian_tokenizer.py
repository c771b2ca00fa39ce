"""Marian's three files make one tokenizer: the same ids as MarianTokenizer of transformers 5.23."""

import json
from pathlib import Path

import pytest

from models.data.marian_tokenizer import load_source_tokenizer
from models.errors import CheckpointError
from tests.fakes.marian_files import PIECES, write_marian_files


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a house", [15, 16, 0]),
        ("  ab   ba ", [2, 17, 2, 4, 3, 0]),
        ("hous e", [2, 7, 14, 18, 2, 6, 0]),
        ("ä house", [2, 10, 16, 0]),  # a letter of target.spm, by itself
        ("Ab ?", [2, 1, 4, 2, 1, 0]),
        (">>fra<< a house", [19, 15, 16, 0]),  # the language of the output
        ("", [0]),
    ],
)
def test_a_source_has_the_ids_that_transformers_gives_it(
    source: str, expected: list[int], tmp_path: Path
) -> None:
    """Expected are the ids that it computes with sentencepiece 0.2.3."""
    write_marian_files(tmp_path)
    tokenizer = load_source_tokenizer(tmp_path)
    assert tokenizer.encode(source).ids == expected


def test_an_output_of_the_target_s_pieces_is_joined(tmp_path: Path) -> None:
    write_marian_files(tmp_path)
    tokenizer = load_source_tokenizer(tmp_path)
    assert tokenizer.decode([11, 12, 2, 3, 4, 0]) == "das haus ab"
    assert tokenizer.get_vocab() == {piece: place for place, piece in enumerate(PIECES)}


def test_files_that_make_no_tokenizer_are_refused_by_name(tmp_path: Path) -> None:
    write_marian_files(tmp_path, model_type=2)
    with pytest.raises(CheckpointError, match=r"source.spm is no unigram model; write tokenizer"):
        load_source_tokenizer(tmp_path)
    write_marian_files(tmp_path, PIECES[1:])
    with pytest.raises(CheckpointError, match=r"vocab.json has no </s>"):
        load_source_tokenizer(tmp_path)
    write_marian_files(tmp_path)
    numbered = json.loads((tmp_path / "vocab.json").read_text())
    (tmp_path / "vocab.json").write_text(json.dumps({**numbered, "<pad>": 0}))
    with pytest.raises(CheckpointError, match=r"the ids of 21 pieces are not 0, 1, 2"):
        load_source_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    with pytest.raises(CheckpointError, match="separate_vocabs is true"):
        load_source_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "source.spm").write_bytes(b"no model")
    with pytest.raises(CheckpointError, match=r"source.spm is no model of SentencePiece"):
        load_source_tokenizer(tmp_path)
