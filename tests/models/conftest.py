"""Fixtures of tiny random models, and the commands as a console script calls them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import typer
from tokenizers import Tokenizer
from typer.testing import CliRunner, Result

from commands.folders.import_command import import_checkpoint
from commands.train.pretrain import pretrain
from commands.train.probe import probe
from commands.train.train import train
from models.checkpoints.checkpoint import Checkpoint, save_checkpoint
from models.data.datasets import Dataset, Splits
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.gpt import GPT, GPTConfig
from models.networks.heads import ClassificationHead, SequenceClassifier
from tests.models.tiny import (
    embedder,
    encoder_config,
    labelled_messages,
    message_splits,
    word_tokenizer,
)

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}  # output to compare with


@pytest.fixture
def tokenizer() -> Tokenizer:
    return word_tokenizer()


@pytest.fixture
def config() -> EncoderConfig:
    return encoder_config()


@pytest.fixture
def embedder_checkpoint(config: EncoderConfig, tokenizer: Tokenizer) -> Checkpoint:
    return embedder(config, tokenizer)


@pytest.fixture
def classifier_checkpoint(config: EncoderConfig, tokenizer: Tokenizer) -> Checkpoint:
    torch.manual_seed(2)
    model = SequenceClassifier(Encoder(config), ClassificationHead(16, 2)).eval()
    labels = ("ham", "spam")
    return Checkpoint(model, "text-classification", labels, tokenizer, 12, "tiny", {"a": 0.5})


@pytest.fixture
def gpt_config() -> GPTConfig:
    return GPTConfig(
        vocab_size=32,
        hidden_size=16,
        num_layers=3,
        num_heads=2,
        intermediate_size=24,
        max_positions=20,
        eos_token_id=3,
    )


@pytest.fixture
def gpt_checkpoint(gpt_config: GPTConfig, tokenizer: Tokenizer) -> Checkpoint:
    torch.manual_seed(6)
    return Checkpoint(GPT(gpt_config).eval(), "text-generation", (), tokenizer, 12, "tiny")


@pytest.fixture
def messages() -> Dataset:
    return labelled_messages()


@pytest.fixture
def splits(messages: Dataset) -> Splits[Dataset]:
    return message_splits(messages)


@pytest.fixture
def as_tsv() -> Callable[[Dataset], str]:
    return lambda data: "".join(f"{row.label}\t{row.text}\n" for row in data.examples)


@pytest.fixture
def run() -> Callable[..., Result]:
    """Call the commands as the console script does."""
    app = typer.Typer()
    app.command("train")(train)
    app.command("import")(import_checkpoint)
    app.command("probe")(probe)
    app.add_typer(pretrain, name="pretrain")

    def call(*arguments: str | Path, **environment: str) -> Result:
        return CliRunner().invoke(app, [str(a) for a in arguments], env={**PLAIN, **environment})

    return call


@pytest.fixture
def base(embedder_checkpoint: Checkpoint, tmp_path: Path) -> Path:
    save_checkpoint(embedder_checkpoint, tmp_path / "base")
    return tmp_path / "base"
