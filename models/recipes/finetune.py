"""Fine-tune a checkpoint for a task: from files and settings to a better checkpoint.

Knows nothing about terminals, signals or report files. The loop itself is in
`models/training/trainer.py`; what differs from task to task is a `Recipe`.
"""

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from models.checkpoints.checkpoint import Checkpoint
from models.data.batches import tokenize
from models.data.datasets import D, Dataset, Splits
from models.errors import SettingError
from models.networks.elmo import Elmo, ElmoNetwork
from models.networks.elmo_tasks import ElmoClassifier
from models.networks.gpt import GPT
from models.networks.gpt_classifier import GPTClassifier, ending_texts
from models.networks.heads import ClassificationHead, SequenceClassifier, TextEmbedder, TextNetwork
from models.networks.kinds import Task
from models.networks.lora import learn_factors_alone
from models.networks.masked import MaskedLanguageModel
from models.networks.pooling import parts_of
from models.recipes.lora import adapted_classifier
from models.training.optimizer import uses_bfloat16
from models.training.settings import TrainingSettings
from models.training.state import Progress, RunIdentity, digest_of
from models.training.supervised import (
    Criterion,
    J,
    R,
    RowObjective,
    classification,
    metrics_of,
    train_rows,
)
from models.training.trainer import Session, seeded

RATE = 5e-5  # the highest that BERT's authors recommend
RATE_OF_ADAPTERS = 5e-4
RATE_OF_FIXED_BODY = 1e-2  # where fresh weights alone learn


@dataclass(frozen=True, slots=True)
class Recipe(Generic[D, R, J]):
    """The parts of fine-tuning for a task.

    `network` gives a copy of a checkpoint's with a head for what is to be learnt, and its labels in
    the order of its outputs. `rows` takes data, labels, tokenizer, the most tokens of a row and the
    id to pad with.
    """

    task: Task
    network: Callable[[Checkpoint, D], tuple[TextNetwork, tuple[str, ...]]]
    rows: Callable[[D, Sequence[str], Tokenizer, int, int], R]
    criterion: Callable[[Sequence[str]], Criterion[R, J]]


@dataclass(frozen=True, slots=True)
class Finetuned(Generic[J]):
    """The best epoch's model, and how the run went."""

    checkpoint: Checkpoint
    evaluations: dict[str, J]  # by the part's name: "validation", and "test" if there is one
    progress: Progress
    bfloat16: bool

    @property
    def evaluated_on(self) -> str:
        """The part that training never saw where there is one, else that of the best epoch."""
        return list(self.evaluations)[-1]

    @property
    def evaluation(self) -> J:
        return self.evaluations[self.evaluated_on]


def finetune_by(
    recipe: Recipe[D, R, J],
    checkpoint: Checkpoint,
    splits: Splits[D],
    settings: TrainingSettings,
    session: Session | None = None,
) -> Finetuned[J]:
    """Train a copy of the checkpoint's model; the global random state stays as it was.

    Raises TrainingInterruptedError and CheckpointError, see `Session`.
    """
    settings = with_rate(settings, checkpoint)
    with seeded(settings.seed):
        model, labels = _network(recipe, checkpoint, splits.train, settings)
        checkpoint = replace(checkpoint, tokenizer=_tokenizer_of(model, checkpoint))
        rows_of = _rows_of(recipe, checkpoint, model, labels, settings)
        criterion = _weighted(recipe.criterion(labels), recipe.task, splits.train, labels, settings)
        objective = RowObjective(
            rows_of(splits.train), rows_of(splits.validation), criterion, settings
        )
        progress = train_rows(
            model,
            objective,
            settings,
            RunIdentity(settings.to_dict(), checkpoint.origin, digest_of(splits)),
            session or Session(),
            frozen=model.body if settings.freeze_encoder or model.has_fixed_body else None,
            narrow=partial(learn_factors_alone, model.body) if settings.lora else lambda: None,
        )
        evaluations = {"validation": criterion.judge(model, objective.validation)}
    if splits.test is not None:
        evaluations["test"] = criterion.judge(model, rows_of(splits.test))
    tuned = Checkpoint(
        model=model,
        task=recipe.task,
        labels=labels,
        tokenizer=checkpoint.tokenizer,
        max_tokens=checkpoint.max_tokens,
        origin=f"{checkpoint.origin}, fine-tuned on {splits.train.name}",
        metrics=metrics_of(evaluations),
        source=checkpoint.source,
    )
    return Finetuned(tuned, evaluations, progress, uses_bfloat16(settings.precision))


def _network(
    recipe: Recipe[D, R, J], checkpoint: Checkpoint, data: D, settings: TrainingSettings
) -> tuple[TextNetwork, tuple[str, ...]]:
    """The network that learns, and its labels; with adapters a classifier's alone has them."""
    if not settings.lora:
        return recipe.network(checkpoint, data)
    if recipe.task != "text-classification":
        raise SettingError("lora", True, f"left out: {recipe.task} has no adapters yet")
    assert isinstance(data, Dataset), "texts with labels are classified"
    return adapted_classifier(checkpoint, data.labels(), settings)


def classifier_from(
    checkpoint: Checkpoint, labels: tuple[str, ...]
) -> tuple[SequenceClassifier | GPTClassifier | ElmoClassifier, tuple[str, ...]]:
    """Copy the classifier if it has these labels, else put a fresh head on a copy of its body.

    The labels come back in the order of the logits. On an encoder a fresh head pools as the
    checkpoint did: an embedder was trained so that its mean, or its first token, says what the
    text says. Raises CheckpointError for a checkpoint of anything but an encoder, a GPT or an ELMo.
    """
    model = checkpoint.model
    is_known = set(labels) == set(checkpoint.labels)
    if isinstance(model, SequenceClassifier | GPTClassifier | ElmoClassifier) and is_known:
        model = copy.deepcopy(model)
        if isinstance(model, SequenceClassifier):
            model.head.score_function = ""  # what is trained here is the task's own
        return model, checkpoint.labels
    if isinstance(model, GPT | GPTClassifier):
        gpt = model if isinstance(model, GPT) else model.gpt
        return GPTClassifier(copy.deepcopy(gpt), len(labels)), labels
    if isinstance(model, Elmo | ElmoNetwork):
        return ElmoClassifier(copy_of_elmo(model), len(labels)), labels
    model = checkpoint.encoder_model
    pooling = "cls"
    if isinstance(model, SequenceClassifier):
        pooling = model.head.pooling
    elif isinstance(model, TextEmbedder):
        pooling = parts_of(model.pooling)[0]
    config = model.config
    head = ClassificationHead(
        config.hidden_size, len(labels), "tanh", dropout=config.dropout, pooling=pooling
    )
    if isinstance(model, MaskedLanguageModel) and model.next_sentence is not None:
        head.dense.load_state_dict(model.next_sentence.dense.state_dict())  # BERT's pooler
    return SequenceClassifier(copy.deepcopy(model.encoder), head), labels


def copy_of_elmo(model: Elmo | ElmoNetwork) -> Elmo:
    """The language models alone, without what was learnt on them."""
    return copy.deepcopy(model if isinstance(model, Elmo) else model.elmo)


def with_rate(settings: TrainingSettings, checkpoint: Checkpoint) -> TrainingSettings:
    """The settings; a learning rate that is not given is the one that suits the network."""
    if settings.learning_rate is not None:
        return settings
    if settings.lora:
        return replace(settings, learning_rate=RATE_OF_ADAPTERS)
    has_fixed_body = isinstance(checkpoint.model, Elmo | ElmoNetwork)
    return replace(settings, learning_rate=RATE_OF_FIXED_BODY if has_fixed_body else RATE)


TEXT_CLASSIFICATION = Recipe(
    "text-classification",
    lambda checkpoint, data: classifier_from(checkpoint, data.labels()),
    tokenize,
    classification,
)
finetune = partial(finetune_by, TEXT_CLASSIFICATION)


def _weighted(
    criterion: Criterion[R, J],
    task: Task,
    data: D,
    labels: Sequence[str],
    settings: TrainingSettings,
) -> Criterion[R, J]:
    """The criterion, with each label's rows weighed as one label's share of them all."""
    if settings.class_weights == "none":
        return criterion
    if task != "text-classification":
        raise SettingError("class_weights", settings.class_weights, f"none: the task is {task}")
    assert isinstance(data, Dataset), "texts with labels are classified"
    counts = Counter(example.label for example in data.examples)
    weights = [len(data) / (len(counts) * max(counts[label], 1)) for label in labels]
    loss = partial(F.cross_entropy, weight=torch.tensor(weights))
    return replace(criterion, loss=loss, score="macro_f1")


def _tokenizer_of(model: TextNetwork, checkpoint: Checkpoint) -> Tokenizer:
    """The checkpoint's; but a GPT classifies by what ends a text."""
    if not isinstance(model, GPTClassifier):
        return checkpoint.tokenizer
    return ending_texts(checkpoint.tokenizer, model.config.eos_token_id)


def _rows_of(
    recipe: Recipe[D, R, J],
    checkpoint: Checkpoint,
    model: TextNetwork,
    labels: Sequence[str],
    settings: TrainingSettings,
) -> Callable[[D], R]:
    max_tokens = settings.max_tokens or checkpoint.max_tokens
    if max_tokens > checkpoint.max_tokens:
        limit = f"at most {checkpoint.max_tokens}, which is what the checkpoint takes"
        raise SettingError("max_tokens", max_tokens, limit)
    pad_token_id = model.pad_token_id
    return lambda data: recipe.rows(data, labels, checkpoint.tokenizer, max_tokens, pad_token_id)
