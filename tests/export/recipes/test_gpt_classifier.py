"""A GPT that classifies, as a graph: causal attention over packed tokens, served as any other."""

import asyncio
from pathlib import Path

import numpy as np
import onnx
import pytest
from attendant.v1 import text_pb2

from export.checks.parity import GraphRunner, check_parity, pad
from export.exporter import export_any
from export.graphs.graph import fused_ops, trace
from export.settings import ExportSettings, Operator
from models.checkpoints.checkpoint import Checkpoint
from models.networks.gpt_classifier import GPTClassifier, ending_texts
from tests.export.graphs.test_first_token import tokens_expanded
from tests.fakes.serving import serving
from tests.fakes.sessions import PATIENCE_S, RealSessions
from tests.fakes.tiny import randomise, torch_outputs
from tests.fakes.tiny_gpt import MAX_TOKENS, NUM_LAYERS, tiny_generator, tiny_gpt

LABELS = ("ham", "spam", "neither")
ROWS = [[5, 6, 7, 8, 9, 256], [3, 256], [256]]
TEXTS = ["WINNER!! claim your free prize now", "", "lunch?"]


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    model = GPTClassifier(tiny_gpt(), len(LABELS))
    randomise(model, seed=2)
    tokenizer = ending_texts(tiny_generator().tokenizer, model.config.eos_token_id)
    return Checkpoint(
        model.eval(), "text-classification", LABELS, tokenizer, MAX_TOKENS, "random weights"
    )


@pytest.fixture(scope="module", params=["Attention", "MultiHeadAttention"])
def graph(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> onnx.ModelProto:
    operator: Operator = request.param
    model = trace(checkpoint.text_network, operator)
    assert fused_ops(model)[operator] == NUM_LAYERS
    return model


def test_the_graph_says_what_the_network_says(
    graph: onnx.ModelProto, checkpoint: Checkpoint
) -> None:
    """Rows of 1 to 96 tokens; no row's neighbours or padding move it."""
    parity = check_parity(checkpoint.text_network, graph, MAX_TOKENS, 1e-4)["logits"]
    assert parity.max_neighbour_effect < 1e-5


def test_no_layer_computes_padding_and_the_last_one_only_what_is_read(
    graph: onnx.ModelProto,
) -> None:
    """9 tokens in 3 rows."""
    batch = pad(ROWS, 0)
    assert tokens_expanded(graph, batch) == [sum(map(len, ROWS)), len(ROWS)]


def test_what_pads_a_row_does_not_matter(graph: onnx.ModelProto) -> None:
    run = GraphRunner(graph)
    np.testing.assert_allclose(run(pad(ROWS, 0)), run(pad(ROWS, 77)), rtol=0, atol=1e-6)


async def test_it_is_exported_and_classifies_over_the_network(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """Also a text of no characters."""
    settings = ExportSettings("spam", tmp_path, "fp32")
    _, manifest = await asyncio.to_thread(export_any, checkpoint, settings)
    assert (manifest.task, manifest.labels) == ("text-classification", LABELS)
    async with serving(tmp_path, RealSessions()) as served:
        request = text_pb2.ClassifyRequest(model="spam", texts=TEXTS, all_scores=True)
        response = await served.text.Classify(request, timeout=PATIENCE_S)
    assert len(response.results) == len(TEXTS)
    for text, result in zip(TEXTS, response.results, strict=True):
        ids = np.array([checkpoint.tokenizer.encode(text).ids])
        batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        logits = torch_outputs(checkpoint.model, batch)[0]
        wanted = np.exp(logits) / np.exp(logits).sum()
        found = {each.label: each.score for each in result.labels}
        assert [found[label] for label in LABELS] == pytest.approx(wanted.tolist(), abs=1e-4)
