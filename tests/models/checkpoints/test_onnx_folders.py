"""The files beside a graph in ONNX say its lengths and channels, or are refused by the field."""

import json
from pathlib import Path

import pytest

from models.checkpoints.folder_plan import Plan
from models.checkpoints.onnx_folders.reading import DEFAULT, Overrides, read_onnx_folder
from models.errors import CheckpointError
from tests.models.tiny import word_tokenizer


@pytest.mark.parametrize("number", [-1, 0, "three", None])
def test_channels_that_no_image_has_are_refused(number: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"num_channels": number}))
    with pytest.raises(CheckpointError, match=r"config\.json: num_channels is .*, but must be a"):
        read_onnx_folder(Plan(tmp_path), "image-classification", 2, Overrides())


def test_a_length_of_null_is_none_that_is_stated(tmp_path: Path) -> None:
    """The longest text is found by trials then, from 512 tokens."""
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": None}))
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    folder = read_onnx_folder(Plan(tmp_path), "question-answering", None, Overrides())
    assert (folder.max_tokens, folder.is_length_stated) == (DEFAULT, False)
