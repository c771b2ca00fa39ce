"""A GPT with a classification head: what it reads, what it learns, and how it is kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.data.datasets import Dataset, Splits
from models.networks.gpt import GPT, GPTConfig
from models.networks.gpt_classifier import GPTClassifier
from models.recipes.finetune import classifier_from, finetune
from models.training.settings import TrainingSettings

LABELS = ("ham", "spam")
SETTINGS = TrainingSettings(epochs=3, batch_size=8, learning_rate=5e-3, patience=3, precision="off")


@pytest.fixture
def classifier(gpt_config: GPTConfig) -> GPTClassifier:
    torch.manual_seed(4)
    return GPTClassifier(GPT(gpt_config), 2).eval()


def logits(model: torch.nn.Module, rows: list[list[int]], pad: int, width: int) -> Tensor:
    ids = torch.tensor([row + [pad] * (width - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    with torch.inference_mode():
        output: Tensor = model(ids, mask)
    return output


def test_padding_and_neighbours_change_nothing(classifier: GPTClassifier) -> None:
    rows = [[5, 6, 7, 3], [9, 3], [3]]
    batch = logits(classifier, rows, pad=8, width=6)
    for row, found in zip(rows, batch, strict=True):
        alone = logits(classifier, [row], pad=0, width=len(row))[0]
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-6)


def test_every_token_of_a_text_has_its_say(classifier: GPTClassifier) -> None:
    """The last token alone is read, and it has seen all that came before it."""
    found = logits(classifier, [[5, 6, 7, 3], [4, 6, 7, 3], [5, 6, 8, 3]], pad=0, width=4)
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_a_gradient_reaches_every_weight_that_reads_and_no_other(
    classifier: GPTClassifier,
) -> None:
    """Of positions and words those that the rows have; the table is no output layer here."""
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    classifier(torch.tensor([[5, 6, 3], [7, 3, 0]]), mask).sum().backward()
    for name, parameter in classifier.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()
        # The key's bias moves all scores of a query alike, and softmax does not see it.
        assert parameter.grad.abs().max() > 0 or name.endswith("key.bias"), name
    words = classifier.gpt.words.weight.grad
    assert words is not None
    assert words.abs().sum(dim=1).nonzero().flatten().tolist() == [3, 5, 6, 7]


def test_a_gpt_learns_to_classify(gpt_checkpoint: Checkpoint, splits: Splits[Dataset]) -> None:
    """Spam is decided by the first word, which is many tokens before the one that is read."""
    result = finetune(gpt_checkpoint, splits, replace(SETTINGS, epochs=20, patience=20))
    assert result.evaluation.accuracy == 1.0
    assert result.checkpoint.task == "text-classification"
    assert result.checkpoint.labels == LABELS
    assert isinstance(result.checkpoint.model, GPTClassifier)


def test_each_text_ends_with_the_end_of_text(
    gpt_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    """Also an empty one, which has a token to be read then; and one that was cut."""
    end = gpt_checkpoint.config.eos_token_id
    tokenizer = finetune(gpt_checkpoint, splits, SETTINGS).checkpoint.tokenizer
    assert tokenizer.encode("").ids == [end]
    assert tokenizer.encode("win").ids == [4, end]
    tokenizer.enable_truncation(3)
    assert tokenizer.encode("win win win win").ids == [4, 4, end]
    assert gpt_checkpoint.tokenizer.encode("win").ids != [4, end], "the caller's stays as it was"


def test_both_texts_of_a_pair_end_with_the_end_of_text(
    gpt_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    """What is read last has both before it, and where the one ends and the other begins."""
    end = gpt_checkpoint.config.eos_token_id
    tokenizer = finetune(gpt_checkpoint, splits, SETTINGS).checkpoint.tokenizer
    assert tokenizer.encode("win", "win win").ids == [4, end, 4, 4, end]
    assert tokenizer.encode("", "").ids == [end, end]


def test_a_frozen_gpt_does_not_change_and_its_head_learns(
    gpt_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    model = finetune(gpt_checkpoint, splits, replace(SETTINGS, freeze_encoder=True)).checkpoint
    before = gpt_checkpoint.model.state_dict()
    learnt = model.text_network.body.state_dict()
    assert all(torch.equal(learnt[name], before[name]) for name in before)
    head = finetune(gpt_checkpoint, splits, replace(SETTINGS, epochs=1, freeze_encoder=True))
    assert not torch.equal(
        head.checkpoint.model.state_dict()["output.weight"],
        model.model.state_dict()["output.weight"],
    )


def test_a_classifier_keeps_its_head_for_its_labels_and_gets_another_for_others(
    gpt_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    tuned = finetune(gpt_checkpoint, splits, SETTINGS).checkpoint
    again, labels = classifier_from(tuned, ("spam", "ham"))
    assert labels == LABELS
    assert torch.equal(again.state_dict()["output.bias"], tuned.model.state_dict()["output.bias"])
    other, labels = classifier_from(tuned, ("a", "b", "c"))
    assert (labels, other.num_labels) == (("a", "b", "c"), 3)
    before, after = tuned.text_network.body.state_dict(), other.body.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_it_comes_back_from_its_folder_as_it_was(
    gpt_checkpoint: Checkpoint, splits: Splits[Dataset], tmp_path: Path
) -> None:
    tuned = finetune(gpt_checkpoint, splits, SETTINGS).checkpoint
    save_checkpoint(tuned, tmp_path / "spam")
    loaded = load_checkpoint(tmp_path / "spam")
    assert (loaded.task, loaded.labels, loaded.metrics) == (tuned.task, LABELS, tuned.metrics)
    rows = [loaded.tokenizer.encode(text).ids for text in ("win prize now", "lunch")]
    assert torch.equal(
        logits(loaded.model.eval(), rows, pad=3, width=4), logits(tuned.model, rows, pad=3, width=4)
    )
