"""Faults of meaning in graphs that read texts, put in by hand, are found by the import's checks."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export.checks.traced_reading import check_longest, check_reader
from export.errors import ExportError
from export.graphs.traced.rows import trace_reader
from models.networks.traced_readers import TracedClassifier, TracedEmbedder, TracedReader
from tests.export.checks.test_traced_faults import (
    Change,
    input_of,
    nodes,
    with_attribute,
    with_initializer,
)
from tests.traced.networks import WINDOW, tiny_reader

ATTENTION, NORM = "Attention", "LayerNormalization"
KINDS: dict[str, type[TracedReader]] = {"modernbert": TracedClassifier, "ernie": TracedEmbedder}


@cache
def traced(model_type: str) -> tuple[TracedReader, onnx.ModelProto]:
    """A network and its graph, which is right; not to be changed."""
    reader = tiny_reader(model_type, KINDS[model_type])
    graph = trace_reader(reader)
    check_reader(reader, graph)
    return reader, graph


def table(part: str) -> Callable[[onnx.ModelProto], str]:
    """The name of the one table with this in its name."""

    def pick(graph: onnx.ModelProto) -> str:
        (name,) = [each.name for each in graph.graph.initializer if part in each.name]
        return name

    return pick


def window_wider(by: int) -> Change:
    def put_in(graph: onnx.ModelProto) -> None:
        stored = {each.name: each for each in graph.graph.initializer}
        compared = [stored[node.input[1]] for node in nodes(graph, "LessOrEqual")]
        (window,) = [each for each in compared if numpy_helper.to_array(each) == WINDOW]
        window.CopyFrom(numpy_helper.from_array(np.array(WINDOW + by), window.name))

    return put_in


def keys_for_values(graph: onnx.ModelProto) -> None:
    node = nodes(graph, ATTENTION)[0]
    node.input[1], node.input[2] = node.input[2], node.input[1]


def without_mask(graph: onnx.ModelProto) -> None:
    """Tokens see what pads their rows."""
    del nodes(graph, ATTENTION)[0].input[3]


FAULTS: dict[str, tuple[str, Change]] = {
    "a window one wider": ("modernbert", window_wider(1)),
    "a window one narrower": ("modernbert", window_wider(-1)),
    "a scale 1 % off": ("modernbert", with_attribute(ATTENTION, "scale", lambda s: 1.01 * s)),
    "no epsilon": ("modernbert", with_attribute(NORM, "epsilon", lambda _: 0.0)),
    "positions 1 % off": (
        "modernbert",
        with_initializer(table("full_attention_inv_freq"), lambda each: 1.01 * each),
    ),
    "keys in place of values": ("modernbert", keys_for_values),
    "positions off by one": (
        "ernie",
        with_initializer(table("position_embeddings"), lambda each: np.roll(each, 1, axis=0)),
    ),
    "token types ignored": (
        "ernie",
        with_initializer(table("token_type"), lambda each: np.broadcast_to(each[:1], each.shape)),
    ),
    "padding is seen": ("ernie", without_mask),
    "a norm's bias dropped": ("ernie", with_initializer(input_of(NORM, 2), np.zeros_like)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_is_put_in_is_found(name: str) -> None:
    model_type, put_in = FAULTS[name]
    reader, right = traced(model_type)
    graph = onnx.ModelProto()
    graph.CopyFrom(right)
    put_in(graph)
    with pytest.raises(ExportError, match="differs from transformers"):
        check_reader(reader, graph)


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (28, ""),
        (29, "texts of 29 tokens are computed by other modules of BigBirdModel than short ones"),
        (2_049, "for at most 2048: choose a --context of 2048 or fewer"),
    ],
)
def test_attention_that_changes_with_the_length_of_a_text_is_refused(
    longest: int, expected: str
) -> None:
    """BigBird's is full up to 28 tokens of these blocks, and stays full after a short text."""
    sizes = {"block_size": 4, "num_random_blocks": 1, "max_position_embeddings": longest}
    reader = tiny_reader("big_bird", TracedEmbedder, **sizes)
    with pytest.raises(ExportError, match=expected) if expected else nullcontext():
        check_longest(reader)
