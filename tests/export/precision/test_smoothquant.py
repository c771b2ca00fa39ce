"""Factors between a channel's weights: int8 rounds well, and the graph computes the same bits."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from export.exporter import export_any
from export.graphs.cached_decoder import trace_decoder
from export.graphs.graph import open_session
from export.graphs.pieces import Pieces
from export.graphs.traced.decoder import trace_traced
from export.precision.samples import prompt_of
from export.precision.smoothquant import evened, factors_of
from export.settings import ExportSettings, HeldOut
from models.networks.llama import Llama
from models.networks.traced import TracedDecoder
from tests.fakes.tiny_gpt import VOCAB_SIZE, liked_text, random_prompts
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator
from tests.traced.networks import tiny_decoder

ROWS = random_prompts((40, 40, 40, 40))
SPIKES = [3, 50]
LARGER = 1_024  # times as large
NETWORKS: Mapping[str, Callable[[], Llama | TracedDecoder]] = {
    "own": tiny_llama,
    "own with biases": lambda: tiny_llama(feed_forward_bias=True),
    "traced": lambda: tiny_decoder("qwen2", gain=0.05, vocab_size=VOCAB_SIZE),
    "traced, gate and value as one": lambda: tiny_decoder("phi3", gain=0.05, vocab_size=VOCAB_SIZE),
}


@torch.no_grad()
def with_spikes(network: Llama | TracedDecoder) -> Llama | TracedDecoder:
    """The same network, with channels in front of the first and last `contract` far larger."""
    own = network if isinstance(network, Llama) else network.network.model
    for layer in (own.layers[0], own.layers[-1]):
        part: Any = layer.feed_forward if isinstance(network, Llama) else layer.mlp
        names = ("expand", "up_proj", "gate_up_proj")
        expand = next(getattr(part, name) for name in names if hasattr(part, name))
        contract: nn.Linear = getattr(part, "contract", None) or part.down_proj
        first = expand.out_features - contract.in_features  # behind the gate where both are one
        for weight in (expand.weight, expand.bias):
            if weight is not None:
                weight[[first + each for each in SPIKES]] *= LARGER
        contract.weight[:, SPIKES] /= LARGER
    return network


@cache
def graph_of(name: str, *, is_spiked: bool = True) -> onnx.ModelProto:
    network = NETWORKS[name]()
    network = with_spikes(network) if is_spiked else network
    return trace_decoder(network) if isinstance(network, Llama) else trace_traced(network)


def logits(model: onnx.ModelProto) -> np.ndarray:
    session = open_session(model)
    feeds = prompt_of(ROWS[0], session.signature.inputs, len(ROWS[0]))
    return np.asarray(session.run(feeds, ["logits"])[0])


def largest_by_layer(model: onnx.ModelProto) -> list[float]:
    """Of each layer, the largest channel in front of the product behind a gate over the median."""
    products = {node.output[0] for node in model.graph.node if node.op_type == "Mul"}
    names = [
        node.input[0]
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[0] in products
    ]
    largest: dict[str, np.ndarray] = {}

    def see(name: str, values: np.ndarray) -> None:
        channels = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
        largest[name] = np.maximum(largest.get(name, channels), channels)

    for _ in Pieces(model, names).run([partial(prompt_of, row) for row in ROWS], see):
        pass
    return [float(largest[name].max() / np.median(largest[name])) for name in names]


@pytest.mark.parametrize("name", NETWORKS)
def test_channels_that_are_far_larger_are_brought_down_and_bits_stay(name: str) -> None:
    """From a thousand times the median to tens; the graph that was given stays as it was."""
    graph = graph_of(name)
    before = graph.SerializeToString(deterministic=True)
    changed = evened(graph, factors_of(graph, ROWS))
    ratios = largest_by_layer(graph)
    assert min(ratios[0], ratios[-1]) > 500
    assert max(largest_by_layer(changed)) < 50
    assert np.array_equal(logits(changed), logits(graph))
    assert graph.SerializeToString(deterministic=True) == before


def test_a_network_without_such_channels_stays() -> None:
    graph = graph_of("own", is_spiked=False)
    assert evened(graph, factors_of(graph, ROWS)) is graph


def test_each_run_is_told_of() -> None:
    steps: list[tuple[int, int]] = []
    factors_of(graph_of("own"), ROWS, lambda done, of: steps.append((done, of)))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_int8_of_a_network_with_such_channels_keeps_its_perplexity(tmp_path: Path) -> None:
    """Within 2 % on text that it likes."""
    network = tiny_llama()
    with_spikes(network)
    settings = ExportSettings("tale", tmp_path, "auto")
    text = HeldOut(text=liked_text(network, 4))
    _, manifest = export_any(tiny_llama_generator(network), settings, text)
    assert manifest.left_out == {}
    (int8,) = manifest.variants
    assert abs(int8.perplexity["rise"]) < 0.02
    assert manifest.perplexity["rise"] == pytest.approx(0, abs=1e-4)
