"""Tasks on an ELMo: the mix of its layers is learnt with a head, and the language models stay."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from typer.testing import Result

from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.data.datasets import Dataset, Splits
from models.data.generated.homographs import MEANINGS, tagged
from models.data.tagged import TaggedDataset, TaggedSentence, read_sentences
from models.networks.elmo import Elmo, ElmoConfig
from models.networks.elmo_tasks import ElmoClassifier, ElmoTokenClassifier
from models.recipes.finetune import finetune, finetune_by, with_rate
from models.recipes.tagging import TOKEN_CLASSIFICATION
from models.training.settings import TrainingSettings

Run = Callable[..., Result]
SETTINGS = TrainingSettings(
    epochs=20, batch_size=8, learning_rate=3e-2, patience=20, precision="off"
)


@pytest.fixture
def elmo_checkpoint(tokenizer: Tokenizer) -> Checkpoint:
    torch.manual_seed(7)
    elmo = Elmo(ElmoConfig(tokenizer.get_vocab_size(), 12, max_positions=20)).eval()
    with torch.no_grad():
        for parameter in elmo.parameters():
            parameter.mul_(3.0)  # fresh LSTMs say little of what stands around a word
    return Checkpoint(elmo, "features", (), tokenizer, 12, "tiny")


def is_same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_classifier_learns_the_mix_and_leaves_the_language_models_as_they_are(
    elmo_checkpoint: Checkpoint, splits: Splits[Dataset], tmp_path: Path
) -> None:
    """Spam is what begins with one of four words; the mix begins as the mean with gamma 1."""
    tuned = finetune(elmo_checkpoint, splits, SETTINGS)
    model = tuned.checkpoint.model
    assert isinstance(model, ElmoClassifier)
    assert is_same(model.elmo, elmo_checkpoint.model)
    assert tuned.evaluation.accuracy == 1.0
    shares = model.mix.weights.detach().softmax(dim=0)
    assert (shares - 1 / 3).abs().max() > 0.02
    assert abs(model.mix.scale.item() - 1.0) > 0.02
    layers = ", ".join(f"layer {layer} {share:.3f}" for layer, share in enumerate(shares.tolist()))
    assert model.learnt_description == (
        f"mix of ELMo's layers: {layers}; gamma {model.mix.scale.item():.3f}"
    )
    save_checkpoint(tuned.checkpoint, tmp_path / "spam")
    loaded = load_checkpoint(tmp_path / "spam")
    assert (loaded.task, loaded.labels) == ("text-classification", ("ham", "spam"))
    assert is_same(loaded.model, model)


def test_a_task_turns_from_the_layer_that_cannot_tell(elmo_checkpoint: Checkpoint) -> None:
    """`now` is tagged by the word before it, which layer 0 does not know."""
    sentences = [
        TaggedSentence(number, (first, "now", "a"), ("O", "B-yes" if first == "win" else "O", "O"))
        for number, first in enumerate(["win", "home", "lunch", "win", "sorry"] * 8)
    ]
    data = TaggedDataset("now.conll", tuple(sentences))
    settings = replace(SETTINGS, epochs=30, patience=30)
    splits = Splits(data, data, None)
    tuned = finetune_by(TOKEN_CLASSIFICATION, elmo_checkpoint, splits, settings)
    model = tuned.checkpoint.model
    assert isinstance(model, ElmoTokenClassifier)
    assert is_same(model.elmo, elmo_checkpoint.model)
    assert tuned.evaluation.overall.f1 == 1.0
    assert model.mix.weights.softmax(dim=0)[0].item() < 0.3


def test_a_classifier_goes_on_where_it_has_the_labels_and_else_begins_anew(
    elmo_checkpoint: Checkpoint, splits: Splits[Dataset]
) -> None:
    tuned = finetune(elmo_checkpoint, splits, replace(SETTINGS, epochs=1)).checkpoint
    barely = replace(SETTINGS, epochs=1, learning_rate=1e-8)
    again = finetune(tuned, splits, barely).checkpoint.model
    pairs = zip(again.state_dict().values(), tuned.model.state_dict().values(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in pairs)
    other = finetune(replace(tuned, labels=("cat", "dog")), splits, barely).checkpoint.model
    assert isinstance(other, ElmoClassifier)
    assert torch.allclose(other.mix.weights, torch.zeros(3), atol=1e-6), "the mix is of a task"
    assert is_same(other.elmo, elmo_checkpoint.model)


def test_a_rate_that_is_not_given_suits_the_network(
    elmo_checkpoint: Checkpoint, embedder_checkpoint: Checkpoint
) -> None:
    for checkpoint, rate in ((elmo_checkpoint, 1e-2), (embedder_checkpoint, 5e-5)):
        assert with_rate(TrainingSettings(), checkpoint) == TrainingSettings(learning_rate=rate)
        assert with_rate(SETTINGS, checkpoint) == SETTINGS


@pytest.mark.parametrize(("given", "rate"), [([], 1e-2), (["--learning-rate", "3e-3"], 3e-3)])
def test_the_command_shows_what_was_learnt(
    given: list[str],
    rate: float,
    elmo_checkpoint: Checkpoint,
    messages: Dataset,
    as_tsv: Callable[[Dataset], str],
    run: Run,
    tmp_path: Path,
) -> None:
    """The learning rate is 1e-2 where none is given: what learns is fresh."""
    save_checkpoint(elmo_checkpoint, tmp_path / "elmo")
    (tmp_path / "spam.tsv").write_text(as_tsv(messages))
    output = tmp_path / "spam"
    result = run(
        "train", tmp_path / "spam.tsv", "--from", tmp_path / "elmo", "--output", output, *given
    )
    assert result.exit_code == 0, result.output
    model = load_checkpoint(output).model
    assert isinstance(model, ElmoClassifier)
    assert model.learnt_description in result.output
    assert json.loads((output / "training.json").read_text())["settings"]["learning_rate"] == rate


def test_an_encoder_keeps_the_rate_of_fine_tuning(
    base: Path, messages: Dataset, as_tsv: Callable[[Dataset], str], run: Run, tmp_path: Path
) -> None:
    (tmp_path / "spam.tsv").write_text(as_tsv(messages))
    output = tmp_path / "spam"
    result = run("train", tmp_path / "spam.tsv", "--from", base, "--output", output)
    assert result.exit_code == 0, result.output
    assert "mix of" not in result.output
    assert json.loads((output / "training.json").read_text())["settings"]["learning_rate"] == 5e-5


def test_tagged_sentences_have_each_meaning_as_often(tmp_path: Path) -> None:
    (tmp_path / "meanings.conll").write_text(tagged(10))
    data = read_sentences(tmp_path / "meanings.conll")
    assert len(data) == 20
    tags = [tag for sentence in data.examples for tag in sentence.tags if tag != "O"]
    assert sorted(tags) == sorted(f"B-{name}" for two in MEANINGS.values() for name in two * 5)
