"""Maps behind the pooling of a sentence-transformers folder, up to the exported graph."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from commands.folders.importing import imported
from export.checks.parity import GraphRunner, pad
from export.graphs.graph import trace
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.errors import CheckpointError, ModelError
from models.networks.heads import TextEmbedder
from models.recipes.import_settings import ImportSettings
from tests.checkpoints.rows import CLS, MEAN, Dense, Row

LABSE = Row("bert", "LaBSE", "embedding", pooling=CLS, dense=(Dense(24, "Tanh"),))
IDS = [2, 9, 14, 33, 3]


def write(folder: Path, row: Row = LABSE) -> Any:
    """A folder, and the network of transformers in it."""
    return row.write(folder)


def set_fields(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@torch.inference_mode()
def embedded(model: Any, ids: list[int] = IDS) -> Any:
    return model(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.int64))[0]


@torch.inference_mode()
def states(network: Any) -> Any:
    return network(torch.tensor([IDS])).last_hidden_state[0]


def add_layer_norm(folder: Path, size: int) -> dict[str, torch.Tensor]:
    """A LayerNorm in place of the Normalize, which stands behind it."""
    modules = json.loads((folder / "modules.json").read_text())
    modules.insert(
        -1,
        {"name": "norm", "type": "sentence_transformers.models.LayerNorm", "path": "3_LayerNorm"},
    )
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "3_LayerNorm").mkdir()
    (folder / "3_LayerNorm" / "config.json").write_text(json.dumps({"dimension": size}))
    weights = {"norm.weight": torch.rand(size) + 0.5, "norm.bias": torch.rand(size)}
    save_file(weights, folder / "3_LayerNorm" / "model.safetensors")
    return weights


def test_a_norm_behind_a_dense_layer_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    """Its formula: the linear map, tanh, the norm of the values, and then length 1."""
    network = write(tmp_path / "hub")
    weights = add_layer_norm(tmp_path / "hub", 24)
    save_checkpoint(load_checkpoint(tmp_path / "hub"), tmp_path / "own")
    model = load_checkpoint(tmp_path / "own").text_network
    with torch.inference_mode():
        mapped = network.dense[0](states(network)[0])
    normed = F.layer_norm(mapped, (24,), weights["norm.weight"], weights["norm.bias"])
    np.testing.assert_allclose(embedded(model), normed / normed.norm(), rtol=0, atol=1e-6)
    assert model.embedding_size == 24
    assert model.pooling_description == "cls of last, mapped to 24, layer norm, normalised"


def test_what_goes_into_a_dense_layer_is_added_mapped_where_sizes_differ(tmp_path: Path) -> None:
    network = write(tmp_path)
    set_fields(tmp_path / "2_Dense" / "config.json", use_residual=True)
    residual = torch.rand(24, 64)
    state = network.dense[0][0].state_dict()
    tensors = {
        **{f"linear.{name}": each for name, each in state.items()},
        "residual.weight": residual,
    }
    save_file(tensors, tmp_path / "2_Dense" / "model.safetensors")
    first = states(network)[0]
    with torch.inference_mode():
        expected = network.dense[0](first) + residual @ first
    found = embedded(load_checkpoint(tmp_path).model)
    np.testing.assert_allclose(found, expected / expected.norm(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("row", [LABSE, replace(LABSE, pooling=MEAN)], ids=["cls", "mean"])
def test_the_graph_has_the_maps_beside_packed_tokens(row: Row, tmp_path: Path) -> None:
    """Rows of 5 and 2 tokens in one batch; of the first token alone the last layer is short."""
    write(tmp_path, row)
    model = load_checkpoint(tmp_path).text_network
    rows = [IDS, [2, 3]]
    run = GraphRunner(trace(model, "Attention"))
    (found,) = run.outputs(pad(rows, model.pad_token_id)).values()
    for ids, vector in zip(rows, found, strict=True):
        np.testing.assert_allclose(vector, embedded(model, ids), rtol=0, atol=1e-5)


def test_an_import_may_add_the_norm_that_no_file_declares(tmp_path: Path) -> None:
    """As the card of nomic-embed-text-v1.5: norm, cut, and then length 1."""
    network = write(tmp_path, replace(LABSE, pooling=MEAN, dense=()))
    plain = load_checkpoint(tmp_path)
    model: Any = imported(plain, "here", ImportSettings(layer_norm=True, normalize=True)).model
    normed = F.layer_norm(states(network).mean(dim=0), (64,))
    found = embedded(model)
    np.testing.assert_allclose(found, normed / normed.norm(), rtol=0, atol=1e-6)
    cut = found[:16] / found[:16].norm()
    np.testing.assert_allclose(cut, normed[:16] / normed[:16].norm(), rtol=0, atol=1e-6)
    assert isinstance(plain.model, TextEmbedder)
    assert not len(plain.model.maps)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"in_features": 32}, "linear.weight has shape .24, 64., but must have .24, 32."),
        (
            {"out_features": "24"},
            "out_features is '24', but must be a whole number from 1 to 65536",
        ),
        (
            {"activation_function": "my.code.Swish"},
            "'my.code.Swish', but must be one of torch.nn.I",
        ),
        (
            {"activation_function": "torch.nn.Softmax"},
            "but must be one of .*: it cannot be imported",
        ),
        ({"module_input_name": "token_embeddings"}, "module_input_name is 'token_embeddings', but"),
        ({"bias": False}, r"2_Dense/model.safetensors: weights 1 unexpected: linear\.bias"),
        ({"bias": "yes"}, "bias is 'yes', but must be true or false"),
    ],
)
def test_a_dense_layer_that_is_not_supported_is_refused_by_name(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    write(tmp_path)
    set_fields(tmp_path / "2_Dense" / "config.json", **values)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(tmp_path)


def test_maps_that_do_not_follow_each_other_are_refused_with_both_sizes(tmp_path: Path) -> None:
    write(tmp_path)
    add_layer_norm(tmp_path, 23)
    with pytest.raises(CheckpointError, match="map of vectors is 23, but must be 24, the values"):
        load_checkpoint(tmp_path)


def test_an_import_cannot_pool_to_another_width_than_the_maps_take(tmp_path: Path) -> None:
    write(tmp_path, replace(LABSE, changes={"num_hidden_layers": 4}))
    with pytest.raises(ModelError, match="map of vectors is 64, but must be 256"):
        imported(load_checkpoint(tmp_path), "here", ImportSettings(layers="concat_last_four"))
