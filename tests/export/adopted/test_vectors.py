"""Nodes make the vectors of a graph's states that NumPy makes, and the import."""

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from onnx import TensorProto, helper

from export.adopted.outputs import give_vectors
from export.adopted.reference import vector_of
from export.adopted.vectors import ACTIVATIONS, VectorMap, VectorUse
from models.choices import POOLINGS, TOGETHER
from models.networks.pooling import pool

SIZE = 6
OPSETS = (11, 13, 18, 21)


def passing_graph(opset: int) -> onnx.ModelProto:
    """A graph whose states are an input, so that a test chooses them."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["states"], ["last_hidden_state"])],
        "g",
        [
            value("states", TensorProto.FLOAT, ["b", "s", SIZE]),
            value("attention_mask", TensorProto.INT64, ["b", "s"]),
        ],
        [value("last_hidden_state", TensorProto.FLOAT, ["b", "s", SIZE])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def by_graph(
    use: VectorUse, states: np.ndarray, mask: np.ndarray, opset: int = 18, *, is_text: bool = False
) -> np.ndarray:
    model = passing_graph(opset)
    give_vectors(model, "last_hidden_state", use, is_text=is_text)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (vectors,) = session.run(["embedding"], {"states": states, "attention_mask": mask})
    return np.asarray(vectors)


@pytest.mark.parametrize(("pooling", "opset"), [*product(POOLINGS, OPSETS)])
def test_every_pooling_in_every_opset_is_that_of_the_import(pooling: str, opset: int) -> None:
    random = np.random.default_rng(1)
    states = random.standard_normal((3, 5, SIZE), np.float32)
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    ours = by_graph(VectorUse(pooling), states, mask, opset)
    theirs = pool(torch.from_numpy(states), torch.from_numpy(mask), pooling).numpy()
    assert ours == pytest.approx(theirs, abs=1e-6)


@some.composite
def uses(draw: Any) -> VectorUse:
    """Poolings, and maps that follow each other."""
    poolings = draw(some.lists(some.sampled_from(POOLINGS), min_size=1, max_size=3, unique=True))
    random = np.random.default_rng(draw(some.integers(0, 999)))
    size, maps = SIZE * len(poolings), []
    for _ in range(draw(some.integers(0, 3))):
        if draw(some.booleans()):
            scale, bias = random.standard_normal((2, size), np.float32)
            maps.append(VectorMap(scale=scale, bias=bias))
            continue
        out = draw(some.sampled_from((size, 4)))
        adds_input = draw(some.booleans())
        weight, residual = random.standard_normal((2, out, size), np.float32)
        maps.append(
            VectorMap(
                draw(some.sampled_from(sorted(ACTIVATIONS))),
                weight,
                random.standard_normal(out, np.float32) if draw(some.booleans()) else None,
                residual if adds_input and out != size else None,
                adds_input,
            )
        )
        size = out
    return VectorUse(TOGETHER.join(poolings), maps, draw(some.booleans()))


@settings(max_examples=40, deadline=None)
@given(use=uses(), lengths=some.lists(some.integers(1, 6), min_size=1, max_size=4))
def test_nodes_give_what_numpy_gives_of_each_text_alone(use: VectorUse, lengths: list[int]) -> None:
    random = np.random.default_rng(2)
    states = random.standard_normal((len(lengths), max(lengths), SIZE), np.float32)
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    together = by_graph(use, states, mask)
    for row, length, vector in zip(states, lengths, together, strict=True):
        assert vector == pytest.approx(vector_of(row[:length], use), rel=2e-4, abs=2e-4)


def test_a_row_of_padding_alone_has_numbers() -> None:
    states, mask = np.ones((1, 2, SIZE), np.float32), np.zeros((1, 2), np.int64)
    for pooling in POOLINGS:
        assert np.isfinite(by_graph(VectorUse(pooling, (), True), states, mask)).all(), pooling
