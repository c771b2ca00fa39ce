"""Fine-tuning: it learns, it starts from what a checkpoint has, and it keeps the best epoch."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.data.datasets import Dataset, Example, Splits
from models.errors import SettingError
from models.networks.heads import SequenceClassifier
from models.recipes.finetune import Finetuned, finetune, finetune_by
from models.recipes.pair_scoring import PAIR_SCORING
from models.training.evaluation import Evaluation
from models.training.settings import TrainingSettings
from models.training.state import Measurement
from models.training.trainer import Listener, Session
from tests.fakes.tiny import MODERN, tiny_embedder

# 24 rows train: 3 steps per epoch, 9 in all.
SETTINGS = TrainingSettings(epochs=3, batch_size=8, learning_rate=5e-3, patience=3, precision="off")


def weights(finetuned: Finetuned[Evaluation]) -> dict[str, Tensor]:
    return finetuned.checkpoint.model.state_dict()


def same_weights(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_an_embedder_learns_to_classify(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    """Spam is decided by the first word; 20 epochs of 24 rows are enough for all 8 test rows."""
    result = finetune(embedder_checkpoint, splits, replace(SETTINGS, epochs=20, patience=20))
    assert result.evaluated_on == "test"
    assert result.evaluation.num_rows == 8
    assert result.evaluation.accuracy == 1.0
    assert result.progress.step_losses[-1] < 0.2 < result.progress.step_losses[0]
    assert result.checkpoint.labels == ("ham", "spam")
    assert result.checkpoint.origin == "tiny, fine-tuned on messages.tsv"
    assert result.checkpoint.metrics["test_accuracy"] == 1.0
    assert result.checkpoint.metrics.keys() == {
        "validation_accuracy",
        "validation_macro_f1",
        "test_accuracy",
        "test_macro_f1",
    }


def test_an_encoder_with_ropes_and_windows_learns_to_classify(
    splits: Splits[Dataset], tmp_path: Path
) -> None:
    """And what it learnt is the same in the folder that it is saved to."""
    settings = replace(SETTINGS, epochs=20, patience=20)
    result = finetune(tiny_embedder(**MODERN), splits, settings)
    assert result.evaluation.accuracy == 1.0
    save_checkpoint(result.checkpoint, tmp_path / "tuned")
    loaded = load_checkpoint(tmp_path / "tuned").model.state_dict()
    assert same_weights(weights(result), loaded)


def test_a_classifier_learns_what_two_texts_have_to_do_with_each_other(
    embedder_checkpoint: Checkpoint,
) -> None:
    """Which of the two is the first: only their types tell, in a tokenizer without separators."""
    tokenizer = embedder_checkpoint.tokenizer
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B:1", special_tokens=[("[CLS]", 2)]
    )
    rows = [("same", "win win", "cash"), ("other", "win", "win cash")] * 8
    data = Dataset("pairs", tuple(Example(i, *row) for i, row in enumerate(rows)))
    settings = replace(SETTINGS, epochs=30, patience=30, learning_rate=1e-2)
    result = finetune(embedder_checkpoint, Splits(data, data), settings)
    assert result.evaluation.accuracy == 1.0


def test_the_callers_model_and_random_state_stay_as_they_were(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    before = {k: v.clone() for k, v in embedder_checkpoint.model.state_dict().items()}
    state = torch.get_rng_state()
    finetune(embedder_checkpoint, splits, replace(SETTINGS, epochs=1))
    assert same_weights(before, embedder_checkpoint.model.state_dict())
    assert torch.equal(state, torch.get_rng_state())


class Recorder(Listener):
    """Keeps the epochs that were measured."""

    def __init__(self) -> None:
        self.records: list[Measurement] = []

    def measured(self, measurement: Measurement) -> None:
        self.records.append(measurement)


def test_training_stops_early_and_the_best_epoch_is_kept(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    """A rate of 0.5 wrecks the model: later epochs are no better, and patience is one epoch."""
    recorder = Recorder()
    settings = replace(SETTINGS, epochs=50, patience=1, learning_rate=0.5, warmup_fraction=0.0)
    result = finetune(embedder_checkpoint, splits, settings, Session(listener=recorder))
    assert len(recorder.records) < 50
    assert len(recorder.records) == result.progress.best_number + 1
    best = min(recorder.records, key=lambda record: record.validation_loss or 0.0)
    assert best.number == result.progress.best_number
    assert result.checkpoint.metrics["validation_accuracy"] == best.figures["accuracy"]
    assert result.checkpoint.metrics["validation_macro_f1"] == best.figures["macro_f1"]


def test_a_frozen_encoder_does_not_change_and_its_head_learns(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    result = finetune(embedder_checkpoint, splits, replace(SETTINGS, freeze_encoder=True))
    tuned, base = result.checkpoint.encoder_model, embedder_checkpoint.encoder_model
    assert same_weights(tuned.encoder.state_dict(), base.encoder.state_dict())
    assert result.progress.measurements[-1].train_loss < result.progress.measurements[0].train_loss
    assert all(parameter.requires_grad for parameter in tuned.parameters())


def test_a_fresh_head_pools_as_its_embedder_did(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    model = finetune(embedder_checkpoint, splits, replace(SETTINGS, epochs=1)).checkpoint.model
    assert isinstance(model, SequenceClassifier)
    assert model.head.pooling == "mean"


def test_a_classifier_with_the_same_labels_keeps_its_head_and_their_order(
    classifier_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    """At a rate of 1e-8 nothing moves by as much as 1e-6: the head is still the old one."""
    swapped = replace(classifier_checkpoint, labels=("spam", "ham"))
    result = finetune(swapped, splits, replace(SETTINGS, epochs=1, learning_rate=1e-8))
    assert result.checkpoint.labels == ("spam", "ham")
    for name, tensor in weights(result).items():
        torch.testing.assert_close(tensor, swapped.model.state_dict()[name], atol=1e-6, rtol=0)


def test_a_classifier_with_other_labels_gets_a_fresh_head(
    classifier_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    other = replace(classifier_checkpoint, labels=("cat", "dog"))
    result = finetune(other, splits, replace(SETTINGS, epochs=1))
    assert result.checkpoint.labels == ("ham", "spam")
    name = "head.output.weight"
    assert not torch.allclose(weights(result)[name], other.model.state_dict()[name], atol=1e-2)


def test_more_tokens_than_the_checkpoint_takes_are_refused(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    with pytest.raises(SettingError, match="max_tokens is 13, but must be at most 12"):
        finetune(embedder_checkpoint, splits, replace(SETTINGS, max_tokens=13))


def rare(count: int) -> Dataset:
    """Of 64 texts `count` are of the label spam, which their first word decides."""
    rows = [
        Example(line, "spam", "free lunch now")
        if line <= count
        else Example(line, "ham", "win now")
        for line in range(1, 65)
    ]
    return Dataset("rare.tsv", tuple(rows))


def test_balanced_weights_count_each_label_the_same(embedder_checkpoint: Checkpoint) -> None:
    """The loss of a rare label's row counts 31 times: 64 / (2 * 2) against 64 / (2 * 62)."""
    splits = Splits(rare(2), rare(2))
    one_step = replace(SETTINGS, epochs=1, batch_size=64, learning_rate=1e-2, warmup_fraction=0.0)
    recall = {
        weights: finetune(
            embedder_checkpoint, splits, replace(one_step, epochs=6, class_weights=weights)
        )
        .evaluation.by_label["spam"]
        .recall
        for weights in ("none", "balanced")
    }
    assert recall == {"none": 0.0, "balanced": 1.0}


def test_weights_of_labels_are_for_classifiers_of_texts(
    embedder_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    with pytest.raises(SettingError, match="none: the task is pair-scoring"):
        finetune_by(PAIR_SCORING, embedder_checkpoint, splits, weighted())  # type: ignore[misc]


def test_settings_without_weights_are_those_of_older_runs() -> None:
    """A run that was interrupted before there were weights goes on."""
    assert "class_weights" not in SETTINGS.to_dict()
    assert weighted().to_dict()["class_weights"] == "balanced"


def weighted() -> TrainingSettings:
    return replace(SETTINGS, class_weights="balanced")
