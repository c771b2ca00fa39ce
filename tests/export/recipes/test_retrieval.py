"""Embedders with several answers, exported: each output is compared, and int8 is held to each."""

import numpy as np
import pytest

from export.checks.agreement import check_agreement
from export.checks.parity import GraphRunner, cosines
from export.checks.retrieval import measure_retrieval
from export.errors import ExportError
from export.exporter import export_any
from export.graphs.graph import trace
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.networks.encoder import Encoder
from models.networks.retrieval import ThreeWayEmbedder
from service.contract.manifest import Manifest
from tests.fakes.tiny import MAX_TOKENS, randomise, tiny_config, tiny_tokenizer

VECTOR_SIZE, SPECIAL_IDS = 16, (0, 1, 2, 3)


def three_ways() -> Checkpoint:
    network = ThreeWayEmbedder(
        Encoder(tiny_config()), "cls", VECTOR_SIZE, unweighted_token_ids=SPECIAL_IDS
    )
    randomise(network, seed=1)
    return Checkpoint(
        network.eval(), "embedding", (), tiny_tokenizer(), MAX_TOKENS, "random weights"
    )


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    folder = tmp_path_factory.mktemp("repository")
    export_any(three_ways(), ExportSettings("m3", folder, "fp32"))
    return Manifest.from_json((folder / "m3" / "1" / "manifest.json").read_text())


def test_a_manifest_has_the_sizes_and_the_parity_of_every_output(manifest: Manifest) -> None:
    assert (manifest.embedding_size, manifest.token_vector_size) == (32, VECTOR_SIZE)
    assert (manifest.sparse_rows, manifest.sparse_size) == ("token", tiny_config().vocab_size)
    assert manifest.unweighted_token_ids == SPECIAL_IDS
    for name in ("", "token_weights.", "token_vectors."):
        assert manifest.parity[f"{name}min_cosine"] == 1.0
        assert manifest.parity[f"{name}max_abs_error"] < 1e-4


def test_what_int8_is_measured_by_is_1_for_the_graph_in_float32() -> None:
    network = three_ways().text_network
    run = GraphRunner(trace(network, "Attention"))
    figures = measure_retrieval([[2, 9, 8, 7, 3], [2, 11, 3]], network, run)
    assert figures == {"weight_correlation": 1.0, "token_vector_cosine": 1.0}


@pytest.mark.parametrize("figure", ["weight_correlation", "token_vector_cosine"])
def test_int8_that_was_not_asked_for_is_refused_where_an_answer_is_off(figure: str) -> None:
    figures = {"texts_compared": 40, "same_neighbours": 1.0, figure: 0.97}
    with pytest.raises(ExportError, match=f"{figure.replace('_', ' ')} .* is 0.97, the limit is"):
        check_agreement("int8", figures)


def test_rows_of_zeros_are_alike_and_have_no_direction() -> None:
    ours = np.array([[0, 0], [0, 0], [3, 4]], np.float32)
    theirs = np.array([[0, 0], [1, 0], [6, 8]], np.float32)
    assert cosines(ours, theirs).tolist() == pytest.approx([1, 0, 1])
