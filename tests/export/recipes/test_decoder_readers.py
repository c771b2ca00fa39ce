"""Decoders that read texts, as graphs: grouped and rotated attention over packed tokens, served."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attendant.v1 import text_pb2

from export.checks.parity import GraphRunner, check_parity, pad
from export.errors import ExportError
from export.exporter import export_any
from export.graphs.graph import fused_ops, trace
from export.settings import ExportSettings, Operator
from models.checkpoints.checkpoint import Checkpoint
from models.networks.decoder_readers import (
    DecoderClassifier,
    DecoderEmbedder,
    DecoderPairScorer,
    DecoderReader,
)
from tests.fakes.serving import serving
from tests.fakes.sessions import PATIENCE_S, RealSessions
from tests.fakes.tiny import torch_outputs
from tests.fakes.tiny_gpt import MAX_TOKENS, byte_tokenizer
from tests.fakes.tiny_llama import tiny_llama

ROWS = [[5, 6, 7, 8, 9, 256], [3, 256], [256]]
OF_ALL_KINDS: dict[str, Any] = {
    "windows": (5, 0, 7),
    "query_key_norm": "head",
    "norm_placement": "both",
    "attention_softcap": 5.0,
    "layer_ropes": (0, -1, 0),
}


@pytest.mark.parametrize(
    ("network", "operator", "is_padded"),
    [
        (DecoderEmbedder(tiny_llama(**OF_ALL_KINDS), "last", normalize=True), "Attention", False),
        (DecoderPairScorer(tiny_llama(num_layers=2), 5), "Attention", True),
        (
            DecoderPairScorer(tiny_llama(num_layers=2, windows=(5, 0))),
            "MultiHeadAttention",
            False,
        ),
        (
            DecoderEmbedder(tiny_llama(is_causal=False, windows=(4, 0, 4)), "mean", normalize=True),
            "Attention",
            False,
        ),
    ],
)
def test_the_graph_says_what_the_network_says(
    network: DecoderReader, operator: Operator, is_padded: bool
) -> None:
    """Rows of 1 to 96 tokens; no row's neighbours or padding move it.

    Of Llama's kind with windows, norms of queries and keys, caps and layers without a rope.
    """
    network.eval()
    graph = trace(network, operator, is_padded=is_padded)
    assert fused_ops(graph)[operator] == network.num_attentions
    (parity,) = check_parity(network, graph, MAX_TOKENS, 1e-4).values()
    assert parity.max_neighbour_effect < 1e-5
    run, batch = GraphRunner(graph), pad(ROWS, 0)
    np.testing.assert_allclose(run(batch), torch_outputs(network, batch), rtol=0, atol=1e-4)
    np.testing.assert_allclose(run(batch), run(pad(ROWS, 77)), rtol=0, atol=1e-6)


def test_caps_of_scores_need_the_operator_that_has_them() -> None:
    network = DecoderEmbedder(tiny_llama(attention_softcap=5.0)).eval()
    with pytest.raises(ExportError, match="MultiHeadAttention, which cannot cap scores"):
        trace(network, "MultiHeadAttention")


async def test_it_is_exported_and_served(tmp_path: Path) -> None:
    """Classes, in both precisions that an export writes by default."""
    labels = ("ham", "spam", "neither")
    network = DecoderClassifier(tiny_llama(num_layers=2), len(labels), 0).eval()
    network.output.weight.data *= 20.0
    checkpoint = Checkpoint(
        network, "text-classification", labels, byte_tokenizer(), MAX_TOKENS, "random weights"
    )
    _, manifest = await asyncio.to_thread(
        export_any, checkpoint, ExportSettings("spam", tmp_path, "fp32")
    )
    assert (manifest.task, manifest.labels) == ("text-classification", labels)
    texts = ["WINNER!! claim your free prize now", "lunch?"]
    async with serving(tmp_path, RealSessions()) as served:
        request = text_pb2.ClassifyRequest(model="spam", texts=texts, all_scores=True)
        response = await served.text.Classify(request, timeout=PATIENCE_S)
    for text, result in zip(texts, response.results, strict=True):
        ids = np.array([checkpoint.tokenizer.encode(text).ids])
        batch = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        logits = torch_outputs(network, batch)[0]
        expected = np.exp(logits) / np.exp(logits).sum()
        scores = {each.label: each.score for each in result.labels}
        assert [scores[label] for label in labels] == pytest.approx(expected.tolist(), abs=1e-4)
