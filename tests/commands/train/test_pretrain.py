"""`attendant pretrain` as a user meets it: files, messages, exit codes."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import Result

from models.checkpoints.checkpoint import load_checkpoint
from models.recipes.kinds import PRETRAIN_KINDS, PretrainKind
from models.training.state import state_path

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
SMALL_RUN = [
    *("--num-layers", "2", "--hidden-size", "32", "--num-heads", "2", "--context", "32"),
    *("--vocab-size", "300", "--steps", "4", "--batch-size", "2", "--evaluate-every", "2"),
    *("--sample-tokens", "6", "--precision", "off"),
]
PNG = b"\x89PNG\r\n"

Run = Callable[..., Result]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "mats.txt"
    path.write_text("\f".join(f"the cat number {i} sat on mat {i % 7}.\n" for i in range(99)))
    return path


def test_training_writes_a_checkpoint_and_its_reports(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    output = tmp_path / "gpt"
    result = run("pretrain", "gpt", "--corpus", corpus, "--output", output, *SMALL_RUN)
    assert result.exit_code == 0, result.output
    assert {path.name for path in output.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "training.json",
        "loss.png",
    }
    checkpoint = load_checkpoint(output)
    assert (checkpoint.task, checkpoint.max_tokens) == ("text-generation", 32)
    assert "step 2: loss" in result.output
    assert "validation perplexity" in result.output
    assert (output / "loss.png").read_bytes().startswith(PNG)
    values = json.loads((output / "training.json").read_text())
    assert values["data"]["files"][0]["file"] == "mats.txt"
    assert values["data"]["files"][0]["bytes"] == corpus.stat().st_size
    assert values["data"]["train_documents"] in (89, 90)
    assert values["settings"]["steps"] == 4
    assert len(values["step_losses"]) == 4
    assert [m["step"] for m in values["measurements"]] == [2, 4]
    assert min(m["perplexity"] for m in values["measurements"]) == pytest.approx(
        checkpoint.metrics["validation_perplexity"]
    )
    assert values["tokens_per_s"] > 0
    assert not state_path(output).exists()
    assert str(tmp_path) not in (output / "training.json").read_text()
    assert str(tmp_path) not in (output / "config.json").read_text()


def test_a_tokenizer_and_a_validation_file_may_be_given(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    """The tokenizer of an earlier checkpoint, as a folder and as a file."""
    first, validation = tmp_path / "first", tmp_path / "unseen.txt"
    validation.write_text("the cat number 100 sat on a chair.")
    command = ["pretrain", "gpt", "--corpus", corpus, *SMALL_RUN]
    assert run(*command, "--output", first).exit_code == 0
    for given in (first, first / "tokenizer.json"):
        result = run(
            *command,
            *("--output", tmp_path / "second", "--tokenizer", given, "--validation", validation),
        )
        assert result.exit_code == 0, result.output
        second = load_checkpoint(tmp_path / "second")
        assert second.tokenizer.to_str() == load_checkpoint(first).tokenizer.to_str()
        values = json.loads((tmp_path / "second" / "training.json").read_text())
        assert [file["file"] for file in values["data"]["files"]] == ["mats.txt"]
        assert values["data"]["validation_file"]["file"] == "unseen.txt"
        assert second.origin == "trained on mats.txt"
        assert values["data"]["train_documents"] == 99


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--steps", "0", "0 is not allowed, it must be from 1 to 1e+08"),
        ("--validation", "0.9", "0.9 is not allowed, it must be from 0.001 to 0.5"),
        ("--size", "huge", "'huge' is not allowed, it must be one of tiny, small"),
        ("--num-heads", "5", "5 is not allowed, it must be a divisor of hidden_size 32"),
        ("--learning-rate", "fast", "should be a valid number"),
    ],
)
def test_a_wrong_flag_is_named_with_value_and_limit(
    run: Run, corpus: Path, tmp_path: Path, flag: str, value: str, message: str
) -> None:
    output = tmp_path / "gpt"
    result = run("pretrain", "gpt", "--corpus", corpus, "--output", output, *SMALL_RUN, flag, value)
    assert result.exit_code == 2
    assert flag in result.output
    assert message in result.output
    assert not output.exists()


def test_wrong_files_and_another_kind_are_named(run: Run, corpus: Path, tmp_path: Path) -> None:
    result = run("pretrain", "lstm", "--corpus", corpus, "--output", tmp_path / "lstm")
    assert result.exit_code == 2
    assert "No such command 'lstm'" in result.output

    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"abc\xff")
    result = run("pretrain", "gpt", "--corpus", broken, "--output", tmp_path / "gpt")
    assert result.exit_code == 1
    assert f"attendant: error: {broken}: byte 3 is no UTF-8 text" in result.output

    result = run("pretrain", "gpt", "--corpus", corpus, "--output", tmp_path)
    assert result.exit_code == 1
    assert "which no checkpoint has" in result.output

    large = [*SMALL_RUN, "--context", "9000"]
    result = run("pretrain", "gpt", "--corpus", corpus, "--output", tmp_path / "gpt", *large)
    assert result.exit_code == 1
    assert "tokens, but one window takes 9000" in result.output


@pytest.mark.parametrize("kind", PRETRAIN_KINDS, ids=lambda kind: kind.name)
def test_every_setting_is_a_flag_with_help_a_default_and_a_variable(
    run: Run, kind: PretrainKind
) -> None:
    assert kind.name in run("pretrain", "--help").output
    shown = run("pretrain", kind.name, "--help").output
    names = {field.name for field in fields(kind.settings)} - {"validation_fraction"}
    own = {"corpus", "output", "validation", "tokenizer", "from", "resume"}
    for name in names | own:
        assert f"ATTENDANT_PRETRAIN_{name.upper()}]" in shown
        assert f"--{name.replace('_', '-')}" in shown
    assert shown.count("ATTENDANT_PRETRAIN_") == len(names | own)


def test_settings_can_come_from_the_environment(run: Run, corpus: Path, tmp_path: Path) -> None:
    result = run(
        *("pretrain", "gpt", "--output", tmp_path / "gpt", *SMALL_RUN),
        ATTENDANT_PRETRAIN_CORPUS=str(corpus),
        ATTENDANT_PRETRAIN_SEED="7",
    )
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "gpt" / "training.json").read_text())["settings"]["seed"] == 7
