"""BGE-M3 and SPLADE from folders as the hub has them, beside what transformers computes."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from export.checks.parity import GraphRunner, pad
from export.graphs.graph import trace
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.errors import CheckpointError, ModelError
from models.networks.retrieval import TermEmbedder, ThreeWayEmbedder
from tests.checkpoints.rows import CLS, VECTOR_SIZE, Row

ROWS = [[0, 9, 17, 9, 33, 2], [0, 41, 2], [0, 7, 3, 8, 2]]  # <s>, pieces, <unk>, </s>
SIZE = 64


def three_way_folder(folder: Path) -> Any:
    """A folder like BGE-M3's; its encoder in transformers, which has its maps."""
    return Row("xlm-roberta", "bge-m3", "three ways", "xlm-roberta", pooling=CLS).write(folder)


def term_folder(folder: Path, **pooling: str) -> Any:
    """A folder like SPLADE's; its network."""
    network = Row("bert", "splade", "terms", form="max").write(folder)
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))
    return network


@torch.inference_mode()
def expected_terms(network: Any, row: list[int], change: Callable[[Any], Any], by: str) -> Any:
    weights = change(torch.log1p(network(torch.tensor([row])).logits[0].relu()))
    return (weights.max(dim=0).values if by == "max" else weights.sum(dim=0)).numpy()


def test_the_three_answers_are_flag_embeddings(tmp_path: Path) -> None:
    reference = three_way_folder(tmp_path)
    model = load_checkpoint(tmp_path).model
    assert isinstance(model, ThreeWayEmbedder)
    run = GraphRunner(trace(model, "Attention"))
    outputs = run.outputs(pad(ROWS, model.pad_token_id))
    with torch.inference_mode():
        hidden = [reference(torch.tensor([row])).last_hidden_state[0] for row in ROWS]
        dense = torch.stack([each[0] / each[0].norm() for each in hidden])
        weights = reference.sparse_linear(torch.cat(hidden)).relu()
        vectors = reference.colbert_linear(torch.cat([each[1:] for each in hidden]))
    np.testing.assert_allclose(outputs["embedding"], dense, atol=1e-5)
    np.testing.assert_allclose(outputs["token_weights"], weights, atol=1e-5)
    units = vectors / vectors.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(outputs["token_vectors"], units, atol=1e-5)
    assert model.unweighted_token_ids == (0, 1, 2, 3), "<s>, <pad>, </s> and <unk>"


def test_vectors_are_computed_of_the_tokens_that_are_asked_for(tmp_path: Path) -> None:
    three_way_folder(tmp_path)
    run = GraphRunner(trace(load_checkpoint(tmp_path).text_network, "Attention"))
    batch = pad(ROWS, 1)
    every = run.outputs(batch)["token_vectors"]
    batch["vector_mask"][0] = 0
    np.testing.assert_allclose(run.outputs(batch)["token_vectors"], every[5:], atol=1e-6)
    batch["vector_mask"][:] = 0
    assert run.outputs(batch)["token_vectors"].shape == (0, VECTOR_SIZE)


@pytest.mark.parametrize("by", ["max", "sum"])
@pytest.mark.parametrize("weights", ["relu", "log1p_relu"])
def test_terms_weigh_as_sentence_transformers_pools_them(
    tmp_path: Path, by: str, weights: str
) -> None:
    reference = term_folder(tmp_path, pooling_strategy=by, activation_function=weights)
    checkpoint = load_checkpoint(tmp_path)
    assert isinstance(checkpoint.model, TermEmbedder)
    again = torch.log1p if weights == "log1p_relu" else lambda values: values
    expected = [expected_terms(reference, row, again, by) for row in ROWS]
    batch = pad(ROWS, checkpoint.text_network.pad_token_id)
    found = GraphRunner(trace(checkpoint.text_network, "Attention"))(batch)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert found.std(axis=0).max() > 0.01, "texts that are alike prove nothing"


def test_both_are_saved_and_loaded_again(tmp_path: Path) -> None:
    three_way_folder(tmp_path / "m3")
    term_folder(tmp_path / "terms", pooling_strategy="sum")
    for name in ("m3", "terms"):
        first = load_checkpoint(tmp_path / name)
        save_checkpoint(first, tmp_path / f"{name}-saved")
        again = load_checkpoint(tmp_path / f"{name}-saved")
        assert type(again.model) is type(first.model)
        assert again.text_network.embedder_fields == first.text_network.embedder_fields
        state = again.model.state_dict()
        assert all(torch.equal(state[key], each) for key, each in first.model.state_dict().items())


class Harm:
    """An object that runs code where it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("code of a file ran",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"weight": torch.ones(1, SIZE)}, "must have weight and bias alone"),
        ({"weight": torch.ones(2, SIZE), "bias": torch.ones(2)}, r"weight must have \[1, 64\]"),
        ({"weight": torch.ones(1, 9), "bias": torch.ones(1)}, r"has shape \[1, 9\]"),
        ({"weight": torch.ones(1, SIZE) / 0, "bias": torch.ones(1)}, "not finite"),
        ({"weight": torch.ones(1, 99_999), "bias": torch.ones(1)}, "must have at most 66056"),
        ([1, 2], "must hold tensors by their names"),
        (b"nonsense", "not a file of weights alone: it is damaged, or holds more than tensors; "),
        (pickle.dumps(Harm()), "not a file of weights alone: it is damaged, or holds more than"),
    ],
)
def test_a_map_that_does_not_fit_is_refused(
    tmp_path: Path, content: Any, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    three_way_folder(tmp_path)
    path = tmp_path / "sparse_linear.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(CheckpointError, match=reason):
        load_checkpoint(tmp_path)
    assert "ran" not in capsys.readouterr().out


def test_one_map_without_the_other_is_refused(tmp_path: Path) -> None:
    three_way_folder(tmp_path)
    (tmp_path / "colbert_linear.pt").unlink()
    with pytest.raises(CheckpointError, match=r"has sparse_linear.pt, which colbert_linear.pt"):
        load_checkpoint(tmp_path)


def test_an_encoder_in_a_pickle_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    """As BGE-M3's publisher has it."""
    network = three_way_folder(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = network.state_dict()
    of_encoder = {name: each for name, each in state.items() if "_linear" not in name}
    torch.save(of_encoder, tmp_path / "pytorch_model.bin")
    assert isinstance(load_checkpoint(tmp_path).model, ThreeWayEmbedder)


def test_pooling_that_is_not_known_and_other_modules_are_refused_by_name(tmp_path: Path) -> None:
    term_folder(tmp_path, pooling_strategy="mean")
    with pytest.raises(ModelError, match="pooling_strategy"):
        load_checkpoint(tmp_path)
    text = (tmp_path / "modules.json").read_text()
    (tmp_path / "modules.json").write_text(text.replace("MLMTransformer", "Router"))
    with pytest.raises(CheckpointError, match="Router, SpladePooling"):
        load_checkpoint(tmp_path)
    modules = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(CLS))
    assert not isinstance(load_checkpoint(tmp_path).model, TermEmbedder)
