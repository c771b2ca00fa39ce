"""Tagging and answering from files to answered commands: trained, exported, served, asked."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tokenizers import Tokenizer
from typer.testing import CliRunner

from commands.main import app
from commands.train.train_runs import DataFiles, train
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import TextEmbedder
from models.training.settings import TrainingSettings
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import SPECIAL, WORDS, RealSessions, write_tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")
MAX_TOKENS = 16
FILLERS = ("sorry", "now", "the", "a", "later")
SETTINGS = TrainingSettings(
    epochs=12, batch_size=16, learning_rate=1e-2, patience=12, precision="off"
)


def write_sentences(path: Path) -> None:
    """`win` and `free` begin prizes, and `cash` goes on with one."""
    chosen = random.Random(0)  # noqa: S311 - to reproduce
    sentences = []
    for _ in range(80):
        words = [(word, "O") for word in chosen.choices(FILLERS, k=3)]
        prize = [(chosen.choice(("win", "free")), "B-prize"), ("cash", "I-prize")]
        place = chosen.randrange(3)
        words[place:place] = prize[: chosen.randint(1, 2)]
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in words))
    path.write_text("\n".join(sentences))


def write_questions(path: Path) -> None:
    """The answer is `free cash`, to whatever is asked; half of the contexts have it not."""
    chosen = random.Random(1)  # noqa: S311 - to reproduce
    rows = []
    for number in range(120):
        words = chosen.choices(FILLERS, k=4)
        words.insert(chosen.randrange(4), "free cash" if number % 2 else "home")
        context = " ".join(words)
        answers = [{"text": "free cash", "answer_start": context.find("free")}]
        asked = {"question": chosen.choice(FILLERS), "context": context}
        rows.append({**asked, "answers": answers if number % 2 else []})
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tags` and `asks`, both from one encoder that knows nothing."""
    folder = tmp_path_factory.mktemp("reading")
    write_tokenizer(folder / "tokenizer.json")
    config = EncoderConfig(
        vocab_size=len(SPECIAL + WORDS),
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_positions=MAX_TOKENS,
    )
    write_sentences(folder / "prizes.conll")
    write_questions(folder / "prizes.jsonl")
    tasks = {
        "tags": ("token-classification", "prizes.conll"),
        "asks": ("question-answering", "prizes.jsonl"),
    }
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    base = TextEmbedder(Encoder(config)).eval()
    save_checkpoint(
        Checkpoint(base, "embedding", (), tokenizer, MAX_TOKENS, "tiny"), folder / "base"
    )
    for name, (task, data) in tasks.items():
        files, output = DataFiles(folder / data), folder / name
        train(task, files, str(folder / "base"), output, SETTINGS, resume=True)
        export_any(load_checkpoint(output), ExportSettings(name, folder / "repository", "fp32"))
    return folder / "repository"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(repository: Path) -> AsyncIterator[Served]:
    async with serving(repository, RealSessions()) as running:
        yield running


async def test_a_command_shows_the_entities_of_texts(served: Served) -> None:
    found = await answer_of(served, "classify-tokens", "tags", "sorry a free cash now", "the a")
    first, second = found["results"]
    assert [(e["label"], e["text"], e["start"], e["end"]) for e in first["entities"]] == [
        ("prize", "free cash", 8, 17)
    ]
    assert second["entities"] == []


async def test_a_command_answers_from_a_text_and_from_a_file(
    served: Served, tmp_path: Path
) -> None:
    """Of the file's three windows only the last one has the answer."""
    text = "sorry the free cash now"
    found = await answer_of(served, "answer", "asks", "later", "--context", text)
    (answer,) = found["answers"]
    assert (answer["text"], answer["start"], answer["end"]) == ("free cash", 10, 19)
    (tmp_path / "context.txt").write_text("now the later a " * 5 + text)
    found = await answer_of(
        served, "answer", "asks", "later", "--context", str(tmp_path / "context.txt")
    )
    assert found["num_windows"] > 1
    assert [answer["start"] for answer in found["answers"]] == [80 + 10]
    found = await answer_of(served, "answer", "asks", "later", "--context", "sorry the home now")
    assert found["answers"] == []
    assert found["no_answer_score"] > 0.5


async def test_tables_show_them_to_people(served: Served) -> None:
    shown = await output_of(served, "classify-tokens", "tags", "free cash [/b]", "the")
    assert "free cash" in shown
    assert "prize" in shown
    assert "none" in shown
    shown = await output_of(served, "answer", "asks", "now", "--context", "the free cash")
    assert "free cash" in shown
    assert "no answer" in shown


async def answer_of(served: Served, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await output_of(served, *arguments, "--json"))
    return found


async def output_of(served: Served, *arguments: str) -> str:
    command = [*arguments, "--address", served.address]
    environment = {"COLUMNS": "150", "NO_COLOR": "1"}
    result = await asyncio.to_thread(CliRunner().invoke, app, command, env=environment)
    assert result.exit_code == 0, result.output
    return result.output
