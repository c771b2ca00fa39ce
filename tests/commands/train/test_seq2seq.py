"""`attendant seq2seq` as a user meets it: files, messages, exit codes."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from commands.train.seq2seq import seq2seq
from models.checkpoints.checkpoint import load_checkpoint

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
QUICK = [
    *("--length", "2", "--symbols", "6", "--samples", "14", "--test-samples", "4"),
    *("--hidden-size", "8", "--epochs", "2"),
]
PNG = b"\x89PNG\r\n"
CHECKPOINT = {"config.json", "model.safetensors", "tokenizer.json", "training.json", "loss.png"}


def run(*arguments: object) -> Result:
    app = typer.Typer()
    app.command("seq2seq")(seq2seq)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=PLAIN)


def test_training_writes_a_checkpoint_and_its_reports(tmp_path: Path) -> None:
    output = tmp_path / "lstm"
    result = run("reversal", "--output", output, *QUICK)
    assert result.exit_code == 0, result.output
    assert {path.name for path in output.iterdir()} == {*CHECKPOINT, "attention.png"}
    assert load_checkpoint(output).config.attention == "dot"
    assert "epoch 2: training loss" in result.output
    assert "reversal of 2 of 6 symbols" in " ".join(result.output.split())
    values = json.loads((output / "training.json").read_text())
    assert [epoch["epoch"] for epoch in values["epochs"]] == [1, 2]
    assert values["settings"]["batch_size"] == 32
    assert set(values["test"]) == {"symbols", "exact"}
    assert (output / "attention.png").read_bytes().startswith(PNG)
    assert list(tmp_path.iterdir()) == [output], "the state of a finished run is gone"


def test_all_attentions_are_trained_and_compared(tmp_path: Path) -> None:
    output = tmp_path / "all"
    result = run("reversal", "--output", output, "--attention", "all", *QUICK)
    assert result.exit_code == 0, result.output
    folders = {"none", "dot", "multiplicative", "additive"}
    pictures = {"curves.png", "attention.png"}
    assert {path.name for path in output.iterdir()} == folders | pictures | {"comparison.json"}
    assert {path.name for path in (output / "none").iterdir()} == CHECKPOINT
    for folder in folders:
        assert load_checkpoint(output / folder).config.attention == folder
        assert folder in result.output
    for picture in pictures:
        assert (output / picture).read_bytes().startswith(PNG)
    values = json.loads((output / "comparison.json").read_text())
    assert set(values["attentions"]) == folders
    assert run("reversal", "--output", output, "--attention", "all", *QUICK).exit_code == 0


def test_a_file_of_pairs_is_learnt_from(tmp_path: Path) -> None:
    path, output = tmp_path / "pairs.tsv", tmp_path / "pairs"
    path.write_text("".join(f"a{i} b\tb a{i}\n" for i in range(20)))
    result = run(path, "--output", output, "--epochs", 1, "--hidden-size", 4)
    assert result.exit_code == 0, result.output
    checkpoint = load_checkpoint(output)
    assert checkpoint.origin == "trained on pairs.tsv"
    assert checkpoint.max_tokens == 3, "two symbols and the end"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["sorting"], 2, "Invalid value for PAIRS: 'sorting' is not allowed"),
        (["reversal", "--attention", "cosine"], 2, "Invalid value for --attention: 'cosine'"),
        (["dates", "--attention", "all"], 2, "must be left out: the transformer has"),
        (
            ["reversal", "--attention", "none", "--form", "bahdanau"],
            2,
            "Invalid value for --form: 'bahdanau' is not allowed",
        ),
        (["reversal", "--epochs", "0"], 2, "Invalid value for --epochs: 0 is not allowed"),
        (["reversal", "--symbols", "2", "--length", "2"], 2, "Invalid value for --samples: 2000"),
        (
            ["reversal", "--attention", "all", "--output", "."],
            1,
            "holds notes.txt, which is not part",
        ),
        (["reversal", "--output", "."], 1, "holds notes.txt, which no checkpoint has"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_trained(
    arguments: list[str],
    exit_code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    output = [] if "--output" in arguments else ["--output", "new"]
    result = run(*arguments, *output)
    assert result.exit_code == exit_code, result.output
    assert message in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
