"""Two kinds of language model, trained for a few steps and compared by their compute."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from commands.train.pretrain import pretrain
from demos.pretraining import Run, main, read_run

HIDDEN_SIZE, LENGTH, NUM_WORDS, BATCH_SIZE = 16, 16, 300, 2
SMALL_RUN = [
    *("--num-layers", "1", "--hidden-size", str(HIDDEN_SIZE), "--num-heads", "1"),
    *("--context", str(LENGTH), "--vocab-size", str(NUM_WORDS), "--batch-size", str(BATCH_SIZE)),
    *("--steps", "4", "--evaluate-every", "2", "--sample-tokens", "0", "--precision", "off"),
]
PNG = b"\x89PNG\r\n"


def call(command: typer.Typer, *arguments: object) -> Result:
    return CliRunner().invoke(command, [str(each) for each in arguments], env={"COLUMNS": "200"})


def compare(*folders: Path, picture: Path) -> Result:
    command = typer.Typer()
    command.command()(main)
    return call(command, *folders, "--picture", picture)


def train(kind: str, folder: Path, text: str = "the cat number {} sat on a mat.\n") -> Path:
    corpus = folder.with_suffix(".txt")
    corpus.write_text("\f".join(text.format(number) for number in range(99)))
    result = call(pretrain, kind, "--corpus", corpus, "--output", folder, *SMALL_RUN)
    assert result.exit_code == 0, result.output
    return folder


def test_trainings_on_one_corpus_are_compared_at_their_compute(tmp_path: Path) -> None:
    gpt, llama = train("gpt", tmp_path / "gpt"), train("llama", tmp_path / "llama")
    result = compare(llama, gpt, picture=tmp_path / "compared.png")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()[2:]]
    assert [row[0] for row in rows] == ["gpt", "llama"]
    reported = json.loads((gpt / "training.json").read_text())["measurements"]
    assert rows[0][4] == f"{min(each['bits_per_byte'] for each in reported):.3f}"
    assert (tmp_path / "compared.png").read_bytes().startswith(PNG)


def test_a_steps_operations_are_those_of_its_products(tmp_path: Path) -> None:
    """Six per weight of a matrix and token; scores and their sums of values, 12 per pair."""
    run = read_run(train("gpt", tmp_path / "gpt"))
    tokens = BATCH_SIZE * LENGTH
    weights = 12 * HIDDEN_SIZE**2 + HIDDEN_SIZE * NUM_WORDS
    assert run.step_flops == 6 * tokens * weights + 12 * HIDDEN_SIZE * tokens * LENGTH
    assert run.steps == (2, 4)


def test_the_best_is_within_the_compute_that_all_had() -> None:
    run = Run("gpt", (), 1, 10**12, (1, 2, 3), (2.0, 1.5, 1.0))
    assert run.compute == [1.0, 2.0, 3.0]
    assert run.best(3.0) == (1.0, 3.0)
    assert run.best(2.5) == (1.5, 2.0)


@pytest.mark.parametrize("other", ["different texts", "no training"])
def test_what_cannot_be_compared_is_refused(other: str, tmp_path: Path) -> None:
    gpt = train("gpt", tmp_path / "gpt")
    second = tmp_path / "second"
    if other == "different texts":
        train("gpt", second, "a dog of {} years slept.\n")
    result = compare(gpt, second, picture=tmp_path / "compared.png")
    assert result.exit_code == typer.BadParameter.exit_code
    assert ("different texts" if other == "different texts" else "second") in result.output
    assert not (tmp_path / "compared.png").exists()
