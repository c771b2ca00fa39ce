"""The five recipes of the ladder: what each one starts from, and how it is trained.

Knows nothing about files, terminals or servers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from demos.ladder_settings import LadderSettings
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.data.corpus import Corpus, hold_out
from models.data.datasets import Dataset
from models.data.vocabulary import train_word_tokenizer
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.heads import TextEmbedder
from models.recipes.gpt import PRETRAINING
from models.recipes.initialise import initialise_words
from models.recipes.pretrain import pretrain
from models.recipes.skip_gram import train_words
from models.recipes.word_settings import WordSettings
from models.training.pretrain_settings import GPTSettings
from models.training.settings import TrainingSettings

FRESH_RATE = 1e-3  # learning rate of weights that know nothing yet: small networks, and heads
VECTOR_DEVIATION = 0.1  # of word vectors in an encoder: above the noise that fresh ones begin with
GPT_VOCABULARY = 2_048  # byte pairs: a corpus of some thousand texts has not many frequent ones
GPT_STEP_TOKENS = 1_536


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to train a classifier; `start` gives the checkpoint that fine-tuning begins with."""

    name: str  # of its folders, and to ask the server for
    what: str
    start: Callable[[], Checkpoint]
    training: TrainingSettings


def recipes_of(data: Dataset, encoder: str, gpt: str, settings: LadderSettings) -> list[Recipe]:
    """All five for texts to train on; `encoder` and `gpt` are checkpoints, the second optional."""
    texts = [example.text for example in data.examples]
    tuning = TrainingSettings(epochs=settings.tuning_epochs, seed=settings.seed)
    fresh = replace(tuning, epochs=settings.epochs, learning_rate=FRESH_RATE)
    head = replace(fresh, epochs=settings.head_epochs, freeze_encoder=True)
    return [
        Recipe("scratch", "Transformer from scratch", lambda: from_scratch(texts, settings), fresh),
        Recipe("words", "the same with word vectors", lambda: from_words(texts, settings), fresh),
        Recipe("frozen", "pretrained, head alone", lambda: load_checkpoint(encoder), head),
        Recipe("tuned", "pretrained, fine-tuned", lambda: load_checkpoint(encoder), tuning),
        Recipe(
            "gpt",
            "GPT, fine-tuned",
            (lambda: load_checkpoint(gpt)) if gpt else lambda: pretrained_gpt(texts, settings),
            replace(tuning, learning_rate=FRESH_RATE / 2),
        ),
    ]


def from_scratch(texts: Sequence[str], settings: LadderSettings) -> Checkpoint:
    """An encoder of fresh weights, whose tokens are the texts' words."""
    tokenizer = train_word_tokenizer(texts, settings.min_count)
    config = EncoderConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        intermediate_size=4 * settings.hidden_size,
        max_positions=settings.max_tokens,
        type_vocab_size=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = TextEmbedder(Encoder(config), "mean")
    return Checkpoint(model, "embedding", (), tokenizer, settings.max_tokens, "fresh weights")


def from_words(texts: Sequence[str], settings: LadderSettings) -> Checkpoint:
    """The same encoder, with vectors that skip-gram learnt from the texts for its words."""
    checkpoint = from_scratch(texts, settings)
    of_words = WordSettings(
        vector_size=settings.hidden_size,
        min_count=settings.min_count,
        epochs=settings.word_epochs,
        seed=settings.seed,
    )
    learnt = train_words(texts, of_words, "the texts").checkpoint
    words = checkpoint.encoder_model.encoder.embeddings.words
    initialise_words(words, checkpoint.tokenizer, learnt, VECTOR_DEVIATION)
    return replace(checkpoint, origin="fresh weights and word vectors")


def pretrained_gpt(texts: Sequence[str], settings: LadderSettings) -> Checkpoint:
    """A GPT of the encoder's sizes that has learnt to continue the texts."""
    of_gpt = GPTSettings(
        vocab_size=GPT_VOCABULARY,
        hidden_size=settings.hidden_size,
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        context=settings.max_tokens,
        batch_size=max(1, GPT_STEP_TOKENS // settings.max_tokens),
        steps=settings.gpt_steps,
        evaluate_every=max(1, settings.gpt_steps // 4),
        sample_tokens=0,
        seed=settings.seed,
    )
    train, validation = hold_out(texts, of_gpt.validation_fraction, settings.seed)
    tokenizer = PRETRAINING.train_tokenizer(train, of_gpt)
    corpus = Corpus((), train, validation)
    learnt = pretrain(PRETRAINING, corpus, tokenizer, of_gpt).checkpoint
    return replace(learnt, origin="trained on the texts")
