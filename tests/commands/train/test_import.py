"""`attendant import` as a user meets it: files, messages, exit codes."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import Result

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint

Run = Callable[..., Result]


def test_a_hugging_face_style_folder_keeps_its_declared_use(
    run: Run, base: Path, tmp_path: Path
) -> None:
    result = run("import", base, tmp_path / "copy", "--origin", "somebody/model")
    assert result.exit_code == 0, result.output
    assert "mean of last" in result.output
    checkpoint = load_checkpoint(tmp_path / "copy")
    assert checkpoint.origin == "somebody/model"
    assert checkpoint.task == "embedding"


def test_an_import_can_change_how_an_encoder_embeds(
    run: Run, classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "classifier")
    flags = ["--pooling", "cls", "--layers", "concat_last_four", "--normalize"]
    result = run(
        *("import", tmp_path / "classifier", tmp_path / "embedder"),
        *("--task", "embedding", *flags),
    )
    assert result.exit_code == 0, result.output
    head = json.loads((tmp_path / "embedder" / "config.json").read_text())["head"]
    assert head == {"pooling": "cls", "layers": "concat_last_four", "normalize": True}
    assert "64 values" in result.output  # 4 layers of 16


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--task", "translation"], "one of auto, text-classification, embedding, fill-mask, text"),
        (["--task", "text-classification"], "must be auto or embedding: "),
        (["--task", "text-generation"], "it must be auto or embedding, which is the task"),
        (["--pooling", "max"], "'max' is not allowed, it must be one of mean, cls"),
        (["--layers", "middle"], "'middle' is not allowed, it must be one of first, last"),
    ],
)
def test_an_import_that_cannot_be_is_refused_by_flag(
    run: Run, base: Path, tmp_path: Path, flags: list[str], message: str
) -> None:
    result = run("import", base, tmp_path / "copy", *flags)
    assert result.exit_code == 2
    assert flags[0] in result.output
    assert message in result.output
    assert not (tmp_path / "copy").exists()


def test_a_classifier_has_no_pooling_to_set(
    run: Run, classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "classifier")
    result = run("import", tmp_path / "classifier", tmp_path / "copy", "--pooling", "cls")
    assert result.exit_code == 2
    assert "it is for embedders" in result.output


def test_a_decoder_keeps_its_use_and_gets_no_other(
    run: Run, gpt_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(gpt_checkpoint, tmp_path / "gpt")
    result = run("import", tmp_path / "gpt", tmp_path / "copy", "--task", "text-generation")
    assert result.exit_code == 0, result.output
    assert "3 layers, 16 values per token" in result.output
    assert "none" in _row(result.output, "chat template")
    assert "own sampling" not in result.output
    assert load_checkpoint(tmp_path / "copy").task == "text-generation"

    result = run("import", tmp_path / "gpt", tmp_path / "other", "--task", "embedding")
    assert result.exit_code == 2
    assert "it must be auto or text-generation, which is the task of" in result.output
    result = run("import", tmp_path / "gpt", tmp_path / "other", "--pooling", "cls")
    assert result.exit_code == 2
    assert "left out: it is for embedders, and the task of" in result.output
    assert not (tmp_path / "other").exists()


def test_the_table_says_whether_a_decoder_takes_chats_and_what_it_samples_with(
    run: Run, gpt_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    chat = {"chat_template": [{"name": "default", "template": "{{ messages }}"}]}
    sampling = {"temperature": 0.6, "top_k": 20}
    save_checkpoint(replace(gpt_checkpoint, chat=chat, sampling=sampling), tmp_path / "gpt")
    result = run("import", tmp_path / "gpt", tmp_path / "copy")
    assert result.exit_code == 0, result.output
    assert "yes" in _row(result.output, "chat template")
    assert "temperature 0.6, top_k 20" in _row(result.output, "own sampling")


def _row(output: str, name: str) -> str:
    """The line of the table that has the name."""
    return next(line for line in output.splitlines() if name in line)
