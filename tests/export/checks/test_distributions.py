"""The cost of a precision where the answer is a number: how far the number itself moves."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import special

from export.checks.agreement import LEAST_AGREEMENT, changes_of
from export.checks.distributions import (
    LARGEST_CHANGES,
    check_changes,
    label_probability_changes,
    probability_changes,
    score_changes,
    similarity_changes,
)
from export.errors import ExportError
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.networks.heads import SequenceClassifier
from tests.fakes.tiny import tiny_classifier

LOGITS = arrays(np.float64, (4, 3), elements=st.floats(-20, 20))


@given(LOGITS, LOGITS)
def test_changes_and_divergences_are_those_of_scipy(ours: np.ndarray, theirs: np.ndarray) -> None:
    figures = probability_changes(ours, theirs)
    found, expected = special.softmax(ours, axis=1), special.softmax(theirs, axis=1)
    assert figures["max_probability_change"] == pytest.approx(
        np.abs(found - expected).max(), abs=1e-9
    )
    divergences = special.rel_entr(expected, found).sum(axis=1)
    assert figures["max_divergence"] == pytest.approx(divergences.max(), rel=1e-6, abs=1e-9)


@given(LOGITS, LOGITS)
def test_each_of_several_labels_has_a_probability_of_its_own(
    ours: np.ndarray, theirs: np.ndarray
) -> None:
    figures = label_probability_changes(ours, theirs)
    found, expected = special.expit(ours), special.expit(theirs)
    assert figures["max_probability_change"] == pytest.approx(
        np.abs(found - expected).max(), abs=1e-9
    )


def test_a_small_probability_that_is_halved_is_seen_by_its_divergence() -> None:
    """7.4 % instead of 3.2 % for one word, and the first word stays: the change is 0.042."""
    theirs, ours = np.log([[0.60, 0.326, 0.074]]), np.log([[0.60, 0.368, 0.032]])
    figures = probability_changes(ours, theirs)
    assert figures["max_probability_change"] < LARGEST_CHANGES["max_probability_change"]
    with pytest.raises(ExportError, match=r"largest divergence from float32's is 0\.023"):
        check_changes("int8", {name: round(value, 3) for name, value in figures.items()})


def test_scores_are_measured_by_their_own_deviation() -> None:
    """An output that is the same for all texts has no scale and is left out."""
    theirs = np.array([[0.0, 7.0], [10.0, 7.0], [20.0, 7.0]])
    ours = theirs + np.array([[0.0, 0.1], [1.0, 0.1], [-2.0, 0.1]])
    assert score_changes(ours, theirs) == {
        "max_score_change": pytest.approx(2.0 / theirs[:, 0].std())
    }
    assert score_changes(theirs[:, 1:], theirs[:, 1:]) == {}


def test_similarities_are_compared_for_every_two_texts() -> None:
    theirs = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    ours = np.array([[1.0, 0.0], [0.6, 0.8], [2.0, 0.0]])
    figures = similarity_changes(ours, theirs)
    assert figures == {
        "max_similarity_change": pytest.approx(0.6),
        "mean_similarity_change": pytest.approx(0.4),
    }
    assert similarity_changes(ours[:1], theirs[:1]) == {}


@pytest.mark.parametrize("name", LARGEST_CHANGES)
def test_each_change_above_its_limit_is_refused_with_the_way_out(name: str) -> None:
    most = LARGEST_CHANGES[name]
    check_changes("int8", {name: most})
    for change in (most * 2, float("nan")):
        with pytest.raises(ExportError, match=rf"the limit is {most}: .*--precision int8"):
            check_changes("int8", {name: change})


@pytest.mark.parametrize(
    ("task", "function", "names"),
    [
        ("text-classification", "", {"max_probability_change", "max_divergence"}),
        ("text-classification", "sigmoid", {"max_probability_change", "max_divergence"}),
        ("text-classification", "identity", {"max_score_change"}),
        ("pair-scoring", "", {"max_probability_change", "max_divergence"}),
        ("pair-scoring", "identity", {"max_score_change"}),
        ("fill-mask", "", {"max_probability_change", "max_divergence"}),
        ("embedding", "", {"max_similarity_change", "mean_similarity_change"}),
    ],
)
def test_every_task_that_answers_with_numbers_has_them_compared(
    task: str, function: str, names: set[str]
) -> None:
    changes = changes_of(task, function)
    assert changes is not None
    assert changes(np.eye(3), np.eye(3)).keys() == names


def confident_and_imprecise() -> Checkpoint:
    """A classifier with the same labels in int8, whose logits differ by much of what 8 bits blur.

    What both labels have in common moves neither, and is most of the logits: their cosine with
    PyTorch's stays near 1.
    """
    checkpoint = tiny_classifier()
    network = checkpoint.model
    assert isinstance(network, SequenceClassifier)
    output = network.head.output
    row = 4 * torch.randn(output.in_features, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        output.weight.copy_(torch.stack([row, -row]))
        output.bias.copy_(torch.tensor([2.5, 0.0]) + 30.0)
    return checkpoint


def test_int8_that_keeps_labels_and_moves_probabilities_is_left_out(tmp_path: Path) -> None:
    """Asked for by name it is written, with the changes in its manifest."""
    checkpoint = confident_and_imprecise()
    settings = ExportSettings("any", tmp_path, "auto")
    folder, manifest = export_any(checkpoint, settings)
    assert not (folder / "model.int8.onnx").exists()
    assert "largest probability change from float32's is 0." in manifest.left_out["int8"]
    _, manifest = export_any(checkpoint, ExportSettings("named", tmp_path, "int8"))
    assert manifest.parity["max_probability_change"] > 0.1
    assert manifest.parity["same_labels"] >= LEAST_AGREEMENT["same_labels"]
