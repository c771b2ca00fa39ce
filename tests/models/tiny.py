"""A tokenizer of a few words, encoders with random weights, and data that is learnt in seconds."""

from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from models.checkpoints.checkpoint import Checkpoint
from models.data.datasets import Dataset, Example, Splits, split
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import TextEmbedder

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = ("win", "prize", "free", "cash", "lunch", "home", "later", "sorry", "now", "the", "a")


def word_tokenizer() -> Tokenizer:
    vocabulary = {word: i for i, word in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=SPECIAL[1]))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


def encoder_config(**changes: int) -> EncoderConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 32,
        "hidden_size": 16,
        "num_layers": 4,
        "num_heads": 2,
        "intermediate_size": 24,
        "max_positions": 20,
    }
    return EncoderConfig(**(sizes | changes))


def embedder(config: EncoderConfig, tokenizer: Tokenizer) -> Checkpoint:
    torch.manual_seed(1)
    network = TextEmbedder(Encoder(config), "mean", "last", normalize=True).eval()
    return Checkpoint(network, "embedding", (), tokenizer, 12, "tiny")


def labelled_messages() -> Dataset:
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


def message_splits(messages: Dataset) -> Splits[Dataset]:
    """24 messages to train on, 8 to choose the best epoch and 8 that training never sees."""
    train, validation, test = split(messages, [0.2, 0.2], seed=0)
    return Splits(train, validation, test)
