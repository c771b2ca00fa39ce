"""`attendant train` as a user meets them: files, messages, exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import Result

from commands.main import app
from models.checkpoints.checkpoint import load_checkpoint
from models.data.datasets import Dataset
from models.training.state import state_path

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
SMALL_RUN = ["--epochs", "2", "--batch-size", "8", "--precision", "off"]

Run = Callable[..., Result]


@pytest.fixture
def data(messages: Dataset, as_tsv: Callable[[Dataset], str], tmp_path: Path) -> Path:
    path = tmp_path / "messages.tsv"
    path.write_text(as_tsv(messages))
    return path


def test_training_writes_a_checkpoint_and_its_reports(
    run: Run, data: Path, base: Path, tmp_path: Path
) -> None:
    output = tmp_path / "spam"
    result = run("train", data, "--from", base, "--output", output, *SMALL_RUN)
    assert result.exit_code == 0, result.output
    assert {path.name for path in output.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "training.json",
        "confusion.png",
        "wrong.csv",
        "loss.png",
    }
    assert load_checkpoint(output).labels == ("ham", "spam")
    assert "validation: 4 rows, accuracy" in result.output
    assert "epoch 2: training loss" in result.output
    assert not state_path(output).exists()
    assert str(tmp_path) not in (output / "training.json").read_text()
    assert str(tmp_path) not in (output / "config.json").read_text()

    again = run("train", data, "--from", base, "--output", output, *SMALL_RUN)
    assert again.exit_code == 0, "an older checkpoint is replaced"


def test_a_validation_file_leaves_all_data_for_training(
    run: Run, data: Path, base: Path, tmp_path: Path
) -> None:
    validation = tmp_path / "validation.jsonl"
    validation.write_text('{"text": "win cash", "label": "spam"}\n')
    output = tmp_path / "spam"
    result = run(
        *("train", data, "--from", base, "--output", output, "--validation", validation),
        *("--test-fraction", "0.2", *SMALL_RUN),
    )
    assert result.exit_code == 0, result.output
    assert json.loads((output / "training.json").read_text())["data"] == {
        "train": {"file": "messages.tsv", "rows": 32},
        "validation": {"file": "validation.jsonl", "rows": 1},
        "test": {"file": "messages.tsv", "rows": 8},
    }


def test_a_test_file_is_what_the_figures_are_of(
    run: Run, data: Path, base: Path, tmp_path: Path
) -> None:
    test_file = tmp_path / "unseen.csv"
    test_file.write_text("label,text\nspam,win cash\nham,home now\nham,lunch\n")
    command = ["train", data, "--from", base, "--output", tmp_path / "spam", *SMALL_RUN]
    result = run(*command, "--test-file", test_file)
    assert result.exit_code == 0, result.output
    assert "test: 3 rows, accuracy" in result.output
    assert "test_accuracy" in load_checkpoint(tmp_path / "spam").metrics

    refused = run(*command, "--test-file", test_file, "--test-fraction", "0.1")
    assert refused.exit_code == 2
    assert "0.1 is not allowed, it must be 0 if a test file is given" in refused.output


def test_settings_can_come_from_the_environment(
    run: Run, data: Path, base: Path, tmp_path: Path
) -> None:
    result = run(
        *("train", data, "--output", tmp_path / "spam", *SMALL_RUN),
        ATTENDANT_TRAIN_FROM=str(base),
        ATTENDANT_TRAIN_SEED="7",
    )
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "spam" / "training.json").read_text())["settings"]["seed"] == 7


def test_what_is_odd_about_the_data_is_said_and_training_goes_on(
    run: Run, data: Path, base: Path, tmp_path: Path
) -> None:
    """A label with one row, a text with two labels, and a text of 100,000 characters."""
    long = "free " * 20_000
    data.write_text(data.read_text() + f"joke\twin a lunch\nham\t{long}\nspam\t{long}\n")
    output = tmp_path / "spam"
    result = run("train", data, "--from", base, "--output", output, *SMALL_RUN)
    assert result.exit_code == 0, result.output
    assert load_checkpoint(output).labels == ("ham", "joke", "spam")
    assert "1 of 3 labels have too few rows to hold any out (the first is 'joke'" in result.output
    assert "'ham' in line 42 and 'spam' in line 43" in result.output
    assert "texts are longer than 12 tokens and cut to that; the first is in li" in result.output
    assert result.output.count("more than one label") == 1


def test_columns_of_other_names_are_named_by_flags(
    run: Run, data: Path, base: Path, tmp_path: Path
) -> None:
    """A task whose files have no columns refuses the flags."""
    rows = [line.split("\t", 1) for line in data.read_text().splitlines()]
    table = tmp_path / "mails.csv"
    table.write_text("Class,Body\n" + "".join(f'{label},"{text}"\n' for label, text in rows))
    names = ("--label-column", "Class", "--text-column", "Body")
    result = run("train", table, "--from", base, "--output", tmp_path / "a", *names, *SMALL_RUN)
    assert result.exit_code == 0, result.output
    assert load_checkpoint(tmp_path / "a").labels == ("ham", "spam")
    tags = (*names, "--task", "token-classification")
    result = run("train", table, "--from", base, "--output", tmp_path / "b", *tags, *SMALL_RUN)
    assert result.exit_code == 2
    assert "mails.csv has no columns with names" in result.output


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--epochs", "0", "0 is not allowed, it must be from 1 to 1000"),
        ("--validation", "0.9", "0.9 is not allowed, it must be from 0.01 to 0.5"),
        ("--precision", "half", "'half' is not allowed, it must be one of auto, on, off"),
        ("--max-tokens", "13", "13 is not allowed, it must be at most 12"),
        ("--learning-rate", "fast", "should be a valid number"),
        (
            "--task",
            "ner",
            "'ner' is not allowed, it must be one of text-classification, token-clas",
        ),
    ],
)
def test_a_wrong_flag_is_named_with_value_and_limit(
    run: Run, data: Path, base: Path, tmp_path: Path, flag: str, value: str, message: str
) -> None:
    result = run("train", data, "--from", base, "--output", tmp_path / "spam", flag, value)
    assert result.exit_code == 2
    assert flag in result.output
    assert message in result.output
    assert not (tmp_path / "spam").exists()


def test_wrong_files_are_named(run: Run, data: Path, base: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text("ham\thello\nspam\n")
    result = run("train", bad, "--from", base, "--output", tmp_path / "spam")
    assert result.exit_code == 1
    assert f"attendant: error: {bad}:2: expected label<TAB>text" in result.output

    result = run("train", data, "--from", "./nowhere/at/all", "--output", tmp_path / "spam")
    assert result.exit_code == 1
    assert "attendant: error: there is no folder" in result.output

    result = run("train", data, "--from", base, "--output", tmp_path)
    assert result.exit_code == 1
    assert "which no checkpoint has" in result.output


@pytest.mark.parametrize("command", ["train", "import"])
def test_every_option_has_help_a_default_and_a_variable(run: Run, command: str) -> None:
    found = get_command(app).get_command(None, command)  # type: ignore[attr-defined]
    assert found is not None
    options = [option for option in found.params if option.param_type_name == "option"]
    assert len(options) == {"train": 26, "import": 14}[command]
    shown = run(command, "--help").output
    for option in options:
        assert option.help
        assert option.envvar.startswith(f"ATTENDANT_{command.upper()}_")
        assert f"env var: {option.envvar}" in shown


def test_without_pytorch_the_command_says_what_to_install(tmp_path: Path) -> None:
    """In a process of its own, where importing torch fails."""
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "import typer\n"
        "from commands.folders.import_command import import_checkpoint\n"
        "from commands.train.train import train\n"
        "app = typer.Typer()\n"
        "app.command('train')(train)\n"
        "app.command('import')(import_checkpoint)\n"
        "app()\n"
    )
    script = tmp_path / "script.py"
    script.write_text(program)
    for arguments in (["train", "a.tsv", "--from", "b", "--output", "c"], ["import", "a", "b"]):
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, str(script), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert done.returncode == 2
        assert done.stderr == (
            f"attendant: error: attendant {arguments[0]} needs PyTorch: "
            "pip install 'attendant[cpu,train]'\n"
        )
