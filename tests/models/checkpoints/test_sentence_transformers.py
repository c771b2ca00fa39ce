"""What a sentence-transformers folder declares; that it embeds so is in test_huggingface."""

import json
from pathlib import Path

import pytest

from models.checkpoints.sentence_transformers import EmbedderFolder, max_sequence
from models.errors import CheckpointError


def declare(folder: Path, steps: list[str], pooling: dict[str, object]) -> None:
    """Write modules.json and the configuration of the pooling, beside no weights at all."""
    places = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [{"type": f"a.b.{step}", "path": places.get(step, f"2_{step}")} for step in steps]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def test_a_folder_without_modules_is_a_plain_encoder_to_be_pooled_by_mean(tmp_path: Path) -> None:
    assert EmbedderFolder.read(tmp_path) == EmbedderFolder(tmp_path, "mean", normalize=False)
    assert not EmbedderFolder.read(tmp_path).is_declared


def test_the_encoder_may_be_in_a_folder_of_its_own(tmp_path: Path) -> None:
    modules = [{"type": "Transformer", "path": "0_Transformer"}, {"type": "Pooling", "path": "1_P"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_P").mkdir()
    (tmp_path / "1_P" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    use = EmbedderFolder.read(tmp_path)
    assert use == EmbedderFolder(tmp_path / "0_Transformer", "cls", is_declared=True)


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode": "cls"},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    ],
)
def test_both_ways_to_name_a_pooling_are_read(tmp_path: Path, pooling: dict[str, object]) -> None:
    declare(tmp_path, ["Transformer", "Pooling", "Normalize"], pooling)
    use = EmbedderFolder.read(tmp_path)
    assert (use.pooling, use.normalize) == ("cls", True)


@pytest.mark.parametrize(
    ("pooling", "message"),
    [
        ({"pooling_mode_max_tokens": True}, "asks for pooling_mode_max_tokens, but only mean"),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "but only mean or cls alone is supported: export it to ONNX with another tool",
        ),
        ({"pooling_mode": "lasttoken"}, "asks for lasttoken"),
        ({}, "asks for no pooling"),
    ],
)
def test_another_pooling_is_refused_by_name(
    tmp_path: Path, pooling: dict[str, object], message: str
) -> None:
    declare(tmp_path, ["Transformer", "Pooling"], pooling)
    with pytest.raises(CheckpointError, match=message):
        EmbedderFolder.read(tmp_path)


def test_a_step_that_an_embedder_cannot_do_is_refused_by_name(tmp_path: Path) -> None:
    declare(tmp_path, ["Transformer", "Pooling", "Dense"], {"pooling_mode": "mean"})
    with pytest.raises(CheckpointError, match="lists Transformer, Pooling, Dense, but only"):
        EmbedderFolder.read(tmp_path)


def test_the_longest_sequence_is_read_where_it_is_declared(tmp_path: Path) -> None:
    assert max_sequence(tmp_path) is None
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    assert max_sequence(tmp_path) == 256
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": "long"}')
    with pytest.raises(CheckpointError, match="wrong type"):
        max_sequence(tmp_path)
