"""One short training for every objective, each of the same shape: for what holds of all of them.

A run of the smallest network that has all parts; with dropout, where it knows dropout, so that
the random state matters.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.checkpoints.checkpoint import Checkpoint
from models.data.corpus import Corpus, TextFile
from models.data.datasets import Example, Splits
from models.data.images import LabelledImage, LabelledImages
from models.data.pairs import PairSplits
from models.data.questions import Answer, Question, QuestionDataset
from models.data.tagged import TaggedDataset, TaggedSentence
from models.recipes.answering import QUESTION_ANSWERING
from models.recipes.bert import PRETRAINING as BERT
from models.recipes.bert_settings import BertSettings
from models.recipes.elmo import PRETRAINING as ELMO
from models.recipes.finetune import TEXT_CLASSIFICATION, Finetuned, Recipe, finetune_by
from models.recipes.gpt import PRETRAINING as GPT
from models.recipes.pair_scoring import PAIR_SCORING, ScoredPairs
from models.recipes.pretrain import Pretraining, pretrain
from models.recipes.seq2seq import train
from models.recipes.seq2seq_settings import Seq2SeqSettings
from models.recipes.seq2seq_systems import NETWORKS, prepare
from models.recipes.tagging import TOKEN_CLASSIFICATION
from models.recipes.vision import split_images, train_vit
from models.recipes.vision_settings import VisionSettings
from models.recipes.word_settings import ElmoSettings
from models.training.pretrain_settings import GPTSettings, PretrainSettings
from models.training.settings import TrainingSettings
from models.training.trainer import Session
from tests.models.tiny import (
    WORDS,
    embedder,
    encoder_config,
    labelled_messages,
    message_splits,
    word_tokenizer,
)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run came to: weights, the loss of each step, and how it was judged each time."""

    network: nn.Module
    losses: list[float]
    history: list[dict[str, Any]]

    @property
    def weights(self) -> dict[str, Tensor]:
        return self.network.state_dict()

    def is_same(self, other: "Ended") -> bool:
        """Bit for bit."""
        ours, theirs = self.weights, other.weights
        return (
            (self.losses, self.history) == (other.losses, other.history)
            and ours.keys() == theirs.keys()
            and all(torch.equal(ours[name], theirs[name]) for name in ours)
        )


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity
class Run:
    """A training of `steps` steps that is measured after every `measure_every`.

    `train` takes changes of settings by name, whether to learn from `other_data`, and what a
    `Session` has. `other` is a setting with another value, and what a refusal says of it.
    """

    name: str
    train: Callable[..., Ended]
    other: tuple[dict[str, Any], str]
    steps: int = 9
    measure_every: int = 3
    where: str = ""  # what an interruption says after the step
    is_cast: bool = False  # whether to try it in bfloat16 too


def stop_after(steps: int) -> Callable[[], bool]:
    """Is asked after every step."""
    remaining = iter(range(steps - 1))
    return lambda: next(remaining, None) is None


# Fine-tuning: 24 rows in batches of 8.

TUNING = TrainingSettings(epochs=3, batch_size=8, learning_rate=5e-3, patience=3, precision="off")


@cache
def start() -> Checkpoint:
    """What is fine-tuned; not to be changed."""
    config = encoder_config(hidden_size=8, num_layers=1, intermediate_size=8)
    return embedder(config, word_tokenizer())


def tagged_splits() -> Splits[TaggedDataset]:
    """`win` and `free` are always entities, and `cash` goes on with what is before it."""
    sentences = []
    for line, (first, second, third) in enumerate(
        product(("win", "free"), ("cash", "lunch", "now"), ("home", "later", "win", "the")), 1
    ):
        tags = ("B-x", "I-x" if second == "cash" else "O", "B-x" if third == "win" else "O")
        sentences.append(TaggedSentence(line, (first, second, third), tags))
    data = TaggedDataset("a", tuple(sentences))
    return Splits(*data.split([0.2], 0))


def question(context: str, *answers: tuple[str, int], text: str = "win") -> Question:
    return Question(1, text, context, tuple(Answer(*answer) for answer in answers))


def question_splits() -> Splits[QuestionDataset]:
    """`win` is the answer to everything; half of the texts have none."""
    examples = []
    for text, *words in product(
        ("now", "the"), ("cash", "lunch"), ("win", "free"), ("home", "later")
    ):
        context = " ".join(words)
        answers = [("win", context.index("win"))] if "win" in context else []
        examples.append(question(context, *answers, text=text))
    data = QuestionDataset("a", tuple(examples))
    return Splits(data, data)


def scored_splits() -> Splits[ScoredPairs]:
    """The more words a text shares with another, the higher the score."""
    rows = (
        (f"{len({*first} & {*second}) / 2}", " ".join(first), " ".join(second))
        for first, second in product(combinations(WORDS[:4], 2), repeat=2)
    )
    data = ScoredPairs("a", tuple(Example(line, *row) for line, row in enumerate(rows, 1)))
    return Splits(replace(data, examples=data.examples[:24]), data)


def ended_of(finetuned: Finetuned[Any]) -> Ended:
    progress = finetuned.progress
    history = [asdict(measurement) for measurement in progress.measurements]
    judged = {"best": progress.best_number, **finetuned.evaluation.to_dict()}
    return Ended(finetuned.checkpoint.model, progress.step_losses, [*history, judged])


def tuning(
    recipe: Recipe[Any, Any, Any], splits: Callable[[], Splits[Any]]
) -> Callable[..., Ended]:
    def run(
        changes: dict[str, Any] | None = None, *, has_other_data: bool = False, **options: Any
    ) -> Ended:
        data = splits()
        if has_other_data:
            fewer = replace(data.train, examples=data.train.examples[1:])
            data = replace(data, train=fewer)
        settings = replace(TUNING, **changes or {})
        ended = finetune_by(recipe, start(), data, settings, Session(**options))
        return ended_of(ended)

    return run


# Images.


@cache
def images() -> LabelledImages:
    """30 of 8 x 8 pixels: light above or below."""
    pixels = np.random.default_rng(0).integers(0, 100, (30, 1, 8, 8)).astype(np.uint8)
    pixels[::2, :, :4] += 100
    examples = (
        LabelledImage(("below", "above")[place % 2 == 0], torch.from_numpy(image))
        for place, image in enumerate(pixels)
    )
    return LabelledImages("halves", tuple(examples))


SEEING = VisionSettings(
    patch_size=4,
    hidden_size=8,
    num_layers=1,
    num_heads=2,
    dropout=0.1,
    epochs=3,
    batch_size=8,
    precision="off",
)


def seeing(
    changes: dict[str, Any] | None = None, *, has_other_data: bool = False, **options: Any
) -> Ended:
    shown = images()
    if has_other_data:
        shown = replace(shown, examples=shown.examples[:-2])
    settings = replace(SEEING, **changes or {})
    ended = train_vit(split_images(shown, settings), settings, Session(**options))
    return ended_of(ended)


# Language models: 9 steps, measured after every third.


@cache
def corpus() -> Corpus:
    documents = tuple(
        " ".join(f"the {animal} {verb} on mat {place}." for place in range(6))
        for animal in ("cat", "dog", "hen")
        for verb in ("sat", "ran", "hid", "ate")
    )
    return Corpus((TextFile("mats.txt", 1, "", documents),), documents[:10], documents[10:])


SPEAKING: dict[str, Any] = {
    "hidden_size": 8,
    "dropout": 0.2,
    "steps": 9,
    "batch_size": 4,
    "accumulation": 2,
    "learning_rate": 1e-2,
    "evaluate_every": 3,
    "precision": "off",
}
SIZES: dict[str, Any] = {"num_layers": 1, "num_heads": 2, "context": 24}


def speaking(pretraining: Pretraining, settings: PretrainSettings) -> Callable[..., Ended]:
    def run(
        changes: dict[str, Any] | None = None, *, has_other_data: bool = False, **options: Any
    ) -> Ended:
        chosen, texts = replace(settings, **changes or {}), corpus()
        tokenizer = pretraining.train_tokenizer(texts.train, settings)
        if has_other_data:
            texts = replace(texts, train=texts.train[1:])
        ended = pretrain(pretraining, texts, tokenizer, chosen, Session(**options))
        history = [asdict(measurement) for measurement in ended.progress.measurements]
        return Ended(ended.checkpoint.model, ended.progress.step_losses, history)

    return run


# Pairs: 12 of them in batches of 4.

PAIRING = Seq2SeqSettings(
    length=2,
    symbols=6,
    samples=12,
    test_samples=4,
    hidden_size=8,
    epochs=3,
    batch_size=4,
    learning_rate=2e-2,
)


def pairing(**sizes: Any) -> Callable[..., Ended]:
    def run(
        changes: dict[str, Any] | None = None, *, has_other_data: bool = False, **options: Any
    ) -> Ended:
        pairs, settings = prepare("reversal", replace(PAIRING, **sizes, **changes or {}))
        if has_other_data:
            pairs = PairSplits(pairs.name, pairs.train, pairs.test[1:])
        ended = train(pairs, NETWORKS[settings.network].load(), settings, Session(**options))
        history = [asdict(epoch) for epoch in ended.progress.measurements]
        judged = {"train": asdict(ended.train), "test": asdict(ended.test)}
        return Ended(ended.network, ended.progress.step_losses, [*history, judged])

    return run


LONGER = {"epochs": 4}, "epochs 3 and not 4"
MORE = {"steps": 20}, "steps 9 and not 20"
EPOCH = r", epoch \d$"
RUNS = (
    Run(
        "text-classification",
        tuning(TEXT_CLASSIFICATION, lambda: message_splits(labelled_messages())),
        LONGER,
        where=EPOCH,
        is_cast=True,
    ),
    Run("token-classification", tuning(TOKEN_CLASSIFICATION, tagged_splits), LONGER, where=EPOCH),
    Run("question-answering", tuning(QUESTION_ANSWERING, question_splits), LONGER, 6, 2, EPOCH),
    Run("pair-scoring", tuning(PAIR_SCORING, scored_splits), LONGER, where=EPOCH),
    Run("images", seeing, LONGER, where=EPOCH),
    Run(
        "gpt",
        speaking(GPT, GPTSettings(vocab_size=270, **SPEAKING, **SIZES)),
        MORE,
        is_cast=True,
    ),
    Run("bert", speaking(BERT, BertSettings(vocab_size=60, **SPEAKING, **SIZES)), MORE),
    Run("elmo", speaking(ELMO, ElmoSettings(num_layers=1, **SPEAKING)), MORE),
    Run("lstm", pairing(network="lstm"), ({"attention": "none"}, "attention 'dot' and not 'none'")),
    Run(
        "transformer",
        pairing(network="transformer", num_layers=1, num_heads=2, dropout=0.1),
        LONGER,
    ),
)
