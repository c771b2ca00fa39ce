"""Fine-tune a checkpoint into a classifier: from files and settings to a better checkpoint.

Knows nothing about terminals, signals or report files: a Listener hears what happens and
`should_stop` is asked after every step. The loop itself is in `models/trainer.py`.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from models.batches import TokenizedDataset, tokenize
from models.checkpoint import Checkpoint
from models.datasets import Dataset, Splits
from models.errors import SettingError
from models.evaluation import Evaluation, evaluate
from models.heads import ClassificationHead, SequenceClassifier, TextEmbedder
from models.settings import TrainingSettings
from models.trainer import Listener, SilentListener, Trainer
from models.training_state import Progress, RunIdentity, digest_of


@dataclass(frozen=True, slots=True)
class Finetuned:
    """The best epoch's model, and how the run went; `evaluation` is of `evaluated_on`."""

    checkpoint: Checkpoint
    evaluation: Evaluation
    evaluated_on: str  # "test" where there is a held-out part, else "validation"
    progress: Progress
    bfloat16: bool


def finetune(
    checkpoint: Checkpoint,
    splits: Splits,
    settings: TrainingSettings,
    *,
    state_file: Path | None = None,
    resume: bool = True,
    listener: Listener | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Finetuned:
    """Train a copy of the checkpoint's model; the global random state stays as it was.

    With a `state_file` the run can be stopped and continued: raises TrainingInterruptedError after
    saving once `should_stop` says so, and CheckpointError if the file belongs to another run.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model, labels = classifier_from(checkpoint, splits.train.labels())
        tokenized = _tokenizer_for(checkpoint, labels, settings)
        trainer = Trainer(
            model=model,
            train=tokenized(splits.train),
            validation=tokenized(splits.validation),
            labels=labels,
            settings=settings,
            identity=RunIdentity(settings.to_dict(), checkpoint.origin, digest_of(splits)),
            listener=listener or SilentListener(),
            frozen=model.encoder if settings.freeze_encoder else None,
        )
        if state_file is not None and resume and state_file.exists():
            trainer.restore(state_file)
        best = trainer.run(state_file, should_stop)
    metrics = {"validation_accuracy": best.accuracy, "validation_macro_f1": best.macro_f1}
    if splits.test is not None:
        best = evaluate(model, tokenized(splits.test), labels)
        metrics |= {"test_accuracy": best.accuracy, "test_macro_f1": best.macro_f1}
    tuned = Checkpoint(
        model=model,
        task="text-classification",
        labels=labels,
        tokenizer=checkpoint.tokenizer,
        max_tokens=checkpoint.max_tokens,
        origin=f"{checkpoint.origin}, fine-tuned on {splits.train.name}",
        metrics=metrics,
    )
    evaluated_on = "validation" if splits.test is None else "test"
    return Finetuned(tuned, best, evaluated_on, trainer.progress, trainer.bfloat16)


def classifier_from(
    checkpoint: Checkpoint, labels: tuple[str, ...]
) -> tuple[SequenceClassifier, tuple[str, ...]]:
    """Copy the classifier if it has these labels, else put a fresh head on a copy of the encoder.

    The labels come back in the order of the logits. A fresh head pools as the checkpoint did: an
    embedder was trained so that its mean, or its first token, says what the text says. Raises
    CheckpointError for a checkpoint that has no encoder.
    """
    model = checkpoint.encoder_model
    if isinstance(model, SequenceClassifier) and set(labels) == set(checkpoint.labels):
        return copy.deepcopy(model), checkpoint.labels
    pooling = "cls"
    if isinstance(model, SequenceClassifier):
        pooling = model.head.pooling
    elif isinstance(model, TextEmbedder):
        pooling = model.pooling
    config = model.config
    head = ClassificationHead(
        config.hidden_size, len(labels), "tanh", dropout=config.dropout, pooling=pooling
    )
    return SequenceClassifier(copy.deepcopy(model.encoder), head), labels


def _tokenizer_for(
    checkpoint: Checkpoint, labels: Sequence[str], settings: TrainingSettings
) -> Callable[[Dataset], TokenizedDataset]:
    max_tokens = settings.max_tokens or checkpoint.max_tokens
    if max_tokens > checkpoint.max_tokens:
        limit = f"at most {checkpoint.max_tokens}, which is what the checkpoint takes"
        raise SettingError("max_tokens", max_tokens, limit)
    pad_token_id = checkpoint.encoder_model.config.pad_token_id
    return lambda dataset: tokenize(dataset, labels, checkpoint.tokenizer, max_tokens, pad_token_id)
