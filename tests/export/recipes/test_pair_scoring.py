"""Scoring of pairs from a file to the command: read, trained, exported, served, asked."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from tokenizers import Tokenizer
from typer.testing import CliRunner

from commands.main import app
from commands.train.train_runs import DataFiles, train
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.errors import CheckpointError, DatasetError
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import PairScorer, TextEmbedder
from models.recipes.pair_scoring import (
    ScoredPairs,
    ScoreEvaluation,
    loss_of_scores,
    read_scored_pairs,
    scorer_from,
)
from models.training.settings import TrainingSettings
from tests.fakes.serving import Served, serving, within_patience
from tests.fakes.sessions import SPECIAL, WORDS, RealSessions, write_tokenizer
from tests.fakes.tiny_gpt import tiny_generator

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAX_TOKENS = 16
GOOD, BAD = ("win prize", "free cash"), ("lunch home", "sorry later")
SETTINGS = TrainingSettings(
    epochs=20, batch_size=16, learning_rate=1e-2, patience=20, precision="off"
)


def write_pairs(path: Path) -> None:
    """To whatever query, texts of prizes match by 0.9 and texts of lunch by 0.1."""
    chosen = random.Random(0)  # noqa: S311 - to reproduce
    rows = ["label\ttext\ttext_pair"]
    for number in range(120):
        query = " ".join(chosen.choices(("the", "a", "now"), k=3))
        is_good = number % 2
        text = chosen.choice(GOOD if is_good else BAD)
        rows.append(f"{0.9 if is_good else 0.1}\t{query}\t{text}")
    path.write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the trained checkpoint `match` and its export."""
    folder = tmp_path_factory.mktemp("scoring")
    write_tokenizer(folder / "tokenizer.json")
    write_pairs(folder / "pairs.tsv")
    config = EncoderConfig(
        vocab_size=len(SPECIAL + WORDS),
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_positions=MAX_TOKENS,
    )
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    base = Checkpoint(
        TextEmbedder(Encoder(config)).eval(), "embedding", (), tokenizer, MAX_TOKENS, "tiny"
    )
    save_checkpoint(base, folder / "base")
    files, output = DataFiles(folder / "pairs.tsv"), folder / "match"
    train("pair-scoring", files, str(folder / "base"), output, SETTINGS, resume=True)
    export_any(load_checkpoint(output), ExportSettings("match", folder / "repository", "fp32"))
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(trained: Path) -> AsyncIterator[Served]:
    async with serving(trained / "repository", RealSessions()) as running:
        yield running


async def test_a_command_ranks_texts_as_the_data_does(served: Served) -> None:
    texts = ["lunch home", "win prize", "sorry later", "free cash"]
    command = ["score", "match", "the a now", *texts, "--json", "--address", served.address]
    invoke = CliRunner().invoke
    result = await within_patience(asyncio.to_thread(invoke, app, command))
    assert result.exit_code == 0, result.output
    scores = [each["score"] for each in json.loads(result.stdout)["results"]]
    assert scores == pytest.approx([0.1, 0.9, 0.1, 0.9], abs=0.15)


async def test_the_report_says_how_scores_agree(trained: Path) -> None:
    report = json.loads((trained / "match" / "training.json").read_text())
    assert report["evaluation"]["correlation"] > 0.95
    assert report["evaluation"]["mean_error"] < 0.1


async def test_a_scorer_is_saved_without_labels_and_trained_further(trained: Path) -> None:
    checkpoint = load_checkpoint(trained / "match")
    assert isinstance(checkpoint.model, PairScorer)
    assert (checkpoint.task, checkpoint.labels) == ("pair-scoring", ())
    again, labels = scorer_from(checkpoint, read_scored_pairs(trained / "pairs.tsv"))
    assert labels == ()
    assert all(
        torch.equal(ours, theirs)
        for ours, theirs in zip(
            again.state_dict().values(), checkpoint.model.state_dict().values(), strict=True
        )
    )
    with pytest.raises(CheckpointError):
        scorer_from(tiny_generator(), read_scored_pairs(trained / "pairs.tsv"))


async def test_the_loss_is_least_at_the_scores_themselves() -> None:
    scores = torch.tensor([0.1, 0.5, 0.9])
    logits = torch.logit(scores)[:, None]
    least = loss_of_scores(logits, scores)
    assert loss_of_scores(logits + 0.1, scores) > least
    assert loss_of_scores(logits - 0.1, scores) > least


async def test_the_pairs_of_a_text_are_held_out_together(tmp_path: Path) -> None:
    rows = [f"0.5\tquery {number // 4}\ttext {number}" for number in range(40)]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(["label\ttext\ttext_pair", *rows]))
    parts = read_scored_pairs(path).split([0.2, 0.2], seed=0)
    assert all(isinstance(part, ScoredPairs) for part in parts)
    queries = [{example.text for example in part.examples} for part in parts]
    assert [len(each) for each in queries] == [6, 2, 2]
    assert sum(map(len, parts)) == 40
    assert not queries[0] & (queries[1] | queries[2])


async def test_figures_of_a_constant_scorer_have_no_correlation() -> None:
    figures = ScoreEvaluation(loss=0.7, correlation=0.0, mean_error=0.25, num_rows=4)
    assert figures.scores() == {"correlation": 0.0, "accuracy": 0.75}


async def test_scores_in_json_lines_are_numbers_or_strings(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    labels = (0, 0.25, "0.5", 1e-05, 1)
    rows = [{"label": label, "text": "a", "text_pair": f"{label}"} for label in labels]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_scored_pairs(path).scores == (0.0, 0.25, 0.5, 1e-05, 1.0)
    path.write_text('{"label": 1.5, "text": "a", "text_pair": "b"}')
    with pytest.raises(DatasetError, match=r"1: the label '1\.5' is no score"):
        read_scored_pairs(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label\ttext\n0.5\ta\n", "no text_pair, expected the columns label, text and text_pair"),
        ("label\ttext\ttext_pair\n1.5\ta\tb\n", "the label '1.5' is no score, expected a number"),
        ("label\ttext\ttext_pair\nspam\ta\tb\n", "2: the label 'spam' is no score"),
        ("label\ttext\ttext_pair\nnan\ta\tb\n", "2: the label 'nan' is no score"),
    ],
)
async def test_what_is_no_scored_pair_is_refused(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text(content)
    with pytest.raises(DatasetError, match=message):
        read_scored_pairs(path)
