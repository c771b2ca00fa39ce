"""Tiny random models, a tokenizer of a few words, and a task that can be learned in seconds."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import typer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from typer.testing import CliRunner, Result

from models.checkpoint import Checkpoint, save_checkpoint
from models.cli import import_checkpoint, pretrain, train
from models.datasets import Dataset, Example, Splits, split
from models.encoder import Encoder, EncoderConfig
from models.gpt import GPT, GPTConfig
from models.heads import ClassificationHead, SequenceClassifier, TextEmbedder
from models.probe.cli import probe

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}  # output to compare with
WORDS = ("win", "prize", "free", "cash", "lunch", "home", "later", "sorry", "now", "the", "a")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small gain nothing from threads, and lose much where cores are shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tokenizer() -> Tokenizer:
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=SPECIAL[1]))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return tokenizer


@pytest.fixture
def config() -> EncoderConfig:
    return EncoderConfig(
        vocab_size=32,
        hidden_size=16,
        num_layers=4,
        num_heads=2,
        intermediate_size=24,
        max_positions=20,
    )


@pytest.fixture
def embedder_checkpoint(config: EncoderConfig, tokenizer: Tokenizer) -> Checkpoint:
    torch.manual_seed(1)
    embedder = TextEmbedder(Encoder(config), "mean", "last", normalize=True).eval()
    return Checkpoint(embedder, "embedding", (), tokenizer, 12, "tiny")


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
    """40 messages of 1 to 8 words: spam where the first word is one of four."""
    generator = torch.Generator().manual_seed(3)
    examples = []
    for line in range(1, 41):
        label, first = ("spam", 0) if line % 2 else ("ham", 4)
        length = int(torch.randint(0, 8, (), generator=generator))
        picks = torch.randint(8, len(WORDS), (length,), generator=generator).tolist()
        words = [WORDS[first + line % 4], *(WORDS[pick] for pick in picks)]
        examples.append(Example(line, label, " ".join(words)))
    return Dataset("messages.tsv", tuple(examples))


@pytest.fixture
def splits(messages: Dataset) -> Splits[Dataset]:
    train, validation, test = split(messages, [0.2, 0.2], seed=0)
    return Splits(train, validation, test)


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
