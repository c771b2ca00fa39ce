"""4 bits for the inputs of sample texts: the same weights in every graph of a decoder."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export.checks.perplexity import windows_of
from export.graphs.graph import open_session
from export.graphs.prefill import trace_prefill
from export.precision.blockwise import quantize_blocks
from export.precision.moments import SampledRounding
from export.precision.samples import prompt_of
from tests.fakes.tiny_gpt import (
    HEAD_SIZE,
    MAX_TOKENS,
    NUM_HEADS,
    NUM_LAYERS,
    liked_text,
    tiny_generator,
    tiny_gpt,
    tiny_graph,
)

NUM_PRODUCTS = 4 * NUM_LAYERS + 1


@pytest.fixture(scope="module")
def windows() -> np.ndarray:
    """8 windows of what the network expects more or less."""
    ids = tiny_generator().tokenizer.encode(liked_text(tiny_gpt(), 8)).ids
    return windows_of(ids, MAX_TOKENS)


def logits(graph: onnx.ModelProto, rows: np.ndarray) -> np.ndarray:
    """Of every token, [rows * tokens, vocabulary]."""
    session = open_session(graph)
    inputs = session.signature.inputs
    feeds = [prompt_of(row, inputs, num_logits=len(row)) for row in rows.tolist()]
    return np.concatenate([session.run(feed, ["logits"])[0] for feed in feeds])


def test_logits_come_closer_to_the_network_s(windows: np.ndarray) -> None:
    """Calibrated on four windows: on the other four the squared error is three quarters or less."""
    steps: list[str] = []
    rounding = SampledRounding(tiny_graph(), windows[:4].tolist(), steps.append)
    exact = logits(tiny_graph(), windows[4:])
    nearest = logits(tiny_graph("int4-weights"), windows[4:])
    compensated = logits(quantize_blocks(tiny_graph(), 4, rounding), windows[4:])
    assert np.square(compensated - exact).mean() < 0.75 * np.square(nearest - exact).mean()
    measuring = "measuring inputs of weights"
    assert steps[:4] == [f"{measuring}: {row} of 4 parts of samples" for row in (1, 2, 3, 4)]
    assert steps[-1] == f"rounding weights: product {NUM_PRODUCTS} of {NUM_PRODUCTS}"


def test_little_memory_measures_products_in_turn(windows: np.ndarray) -> None:
    """Room for one product's weights: samples go through the graph once, the result is equal."""
    rows = windows[:2].tolist()
    steps: list[str] = []
    at_once = quantize_blocks(tiny_graph(), 4, SampledRounding(tiny_graph(), rows))
    rounding = SampledRounding(tiny_graph(), rows, steps.append, max_bytes=1)
    in_turn = quantize_blocks(tiny_graph(), 4, rounding)
    counts = [step for step in steps if step.startswith("measuring")]
    most = counts[-1].split()[-4]
    assert int(most) >= len(rows) * NUM_PRODUCTS
    assert counts == [
        f"measuring inputs of weights: {run + 1} of {most} parts of samples"
        for run in range(int(most))
    ]
    assert in_turn.SerializeToString() == at_once.SerializeToString()


def test_a_graph_for_prompts_has_the_same_weights(windows: np.ndarray) -> None:
    """Both are rounded to the same bits, so that the two can share them."""
    rounding = SampledRounding(tiny_graph(), windows[:1].tolist())
    largest = {
        f"present.{layer}.{side}": np.ones((NUM_HEADS, HEAD_SIZE))
        for layer in range(NUM_LAYERS)
        for side in ("key", "value")
    }
    graphs = tiny_graph(), trace_prefill(tiny_gpt(), largest)
    columns = []
    for graph in graphs:
        blocks = quantize_blocks(graph, 4, rounding).graph
        packed = [t for t in blocks.initializer if t.name.endswith(".int4")]
        rows = (row.tobytes() for each in packed for row in numpy_helper.to_array(each))
        columns.append(sorted(rows))
    assert columns[0] == columns[1]
