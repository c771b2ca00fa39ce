"""The ladder of text classification, with networks that train in seconds."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from demos import comparison
from demos.comparison import VALIDATION_FRACTION, Files, run_all
from demos.ladder_report import Result
from demos.ladder_settings import LadderSettings
from demos.recipes import VECTOR_DEVIATION, Recipe, from_scratch, from_words
from models.checkpoints.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from models.data.vocabulary import SPECIAL
from models.errors import SettingError
from tests.fakes.tiny import tiny_embedder

DATA = Path(__file__).parents[2] / "models/data"
NUM_TRAINING, NUM_TEST = 60, 24
SETTINGS = LadderSettings(
    hidden_size=16,
    num_layers=1,
    epochs=1,
    word_epochs=1,
    gpt_steps=2,
    tuning_epochs=1,
    head_epochs=1,
    max_tokens=24,
    training_texts=NUM_TRAINING,
    requests=8,
)
NAMES = ["scratch", "words", "frozen", "tuned", "gpt"]
TEXTS = ["win a prize now", "we are home now", "a prize is waiting", "home for lunch"] * 50


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Messages as they ship, and a tiny encoder in place of a pretrained one."""
    test = tmp_path / "test.tsv"
    with (DATA / "spam_heldout.tsv").open() as held_out:
        test.write_text("".join(islice(held_out, NUM_TEST)))
    save_checkpoint(tiny_embedder(), tmp_path / "encoder")
    return Files(DATA / "spam.tsv", test, str(tmp_path / "encoder"), "")


def test_each_rung_is_trained_exported_served_and_measured(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "ladder"
    steps = run_all(files, output, tmp_path / "repository", SETTINGS)
    assert [step.name for step in steps] == NAMES
    for step in steps:
        checkpoint = load_checkpoint(output / "checkpoints" / step.name)
        assert step.accuracy == checkpoint.metrics["test_accuracy"]
        assert step.accuracy * NUM_TEST == pytest.approx(round(step.accuracy * NUM_TEST))
        weights = sum(weight.numel() for weight in checkpoint.model.parameters())
        assert step.num_weights == weights
        graph = tmp_path / "repository" / step.name / "1/model.onnx"
        assert step.megabytes == graph.stat().st_size / 1e6 > 4 * weights / 1e6 * 0.9
        assert step.training_s > 0
        assert step.training_cpu_s > 0
        assert 0 < step.requests_per_s < 1e5
    told = json.loads((output / "ladder.json").read_text())
    assert [rung["name"] for rung in told["rungs"]] == NAMES
    num_learnt = NUM_TRAINING - round(NUM_TRAINING * VALIDATION_FRACTION)
    assert f"{num_learnt} texts to train on, {NUM_TEST} to test on" in told["task"]
    assert (output / "ladder.png").read_bytes().startswith(b"\x89PNG")
    table = capsys.readouterr().out
    assert all(step.what in table for step in steps)


def test_a_run_that_was_stopped_goes_on_where_it_was_and_no_other_does(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[str] = []

    def run(recipe: Recipe, *_: object) -> Result:
        if recipe.name == "tuned" and "stopped" not in trained:
            trained.append("stopped")
            raise KeyboardInterrupt
        trained.append(recipe.name)
        return Result(recipe.name, recipe.what, 0.5, 0.5, 1.0, 1.0, 10, 1.0)

    @contextmanager
    def serving(*_: object) -> Iterator[str]:
        yield "nowhere"

    monkeypatch.setattr(comparison, "run", run)
    monkeypatch.setattr(comparison, "serving", serving)
    monkeypatch.setattr(
        comparison, "request_rates", lambda _, names, *__: dict.fromkeys(names, 7.0)
    )
    places = tmp_path / "ladder", tmp_path / "repository"
    with pytest.raises(KeyboardInterrupt):
        run_all(files, *places, SETTINGS)
    with pytest.raises(CheckpointError, match="is of another run"):
        run_all(files, *places, replace(SETTINGS, seed=1))
    steps = run_all(files, *places, SETTINGS)
    assert trained == ["scratch", "words", "frozen", "stopped", "tuned", "gpt"]
    assert [(step.name, step.requests_per_s) for step in steps] == [(name, 7.0) for name in NAMES]


def test_word_vectors_are_all_in_which_the_first_two_rungs_differ() -> None:
    fresh, begun = from_scratch(TEXTS, SETTINGS), from_words(TEXTS, SETTINGS)
    assert fresh.tokenizer.to_str() == begun.tokenizer.to_str()
    ours, theirs = fresh.model.state_dict(), begun.model.state_dict()
    changed = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert changed == ["encoder.embeddings.words.weight"]
    vectors = theirs[changed[0]][len(SPECIAL) :]
    assert vectors.std().item() == pytest.approx(VECTOR_DEVIATION, rel=1e-3)


@pytest.mark.parametrize(("encoder", "gpt"), [("nowhere", ""), ("", "nowhere")])
def test_a_checkpoint_that_is_not_there_is_missed_before_anything_is_trained(
    encoder: str, gpt: str, files: Files, tmp_path: Path
) -> None:
    absent = replace(files, encoder=encoder or files.encoder, gpt=gpt)
    with pytest.raises(CheckpointError, match="there is no folder 'nowhere'"):
        run_all(absent, tmp_path / "ladder", tmp_path / "repository", SETTINGS)
    assert not (tmp_path / "ladder").exists()


def test_a_folder_that_holds_something_is_left_alone(files: Files, tmp_path: Path) -> None:
    (tmp_path / "ladder").mkdir()
    (tmp_path / "ladder" / "mine").touch()
    with pytest.raises(CheckpointError, match="holds something"):
        run_all(files, tmp_path / "ladder", tmp_path / "repository", SETTINGS)


def test_a_setting_out_of_its_bounds_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match="max_tokens is 7"):
        LadderSettings(max_tokens=7)
