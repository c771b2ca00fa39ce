"""Weights in blocks of 8 or 4 bits: what is rounded, by how much, and what is left alone."""
# ruff: noqa: N803, N806 - suffixes are array layouts: K inputs, N outputs

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.checks.decoding import DecoderParity, measure_parity
from export.errors import ExportError
from export.precision.blockwise import BLOCK_SIZE, quantize_blocks
from service.contract.manifest import Precision
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes.processor import in_blocks
from tests.fakes.tiny_gpt import NUM_LAYERS, VOCAB_SIZE, tiny_gpt, tiny_graph

# Query with key and value, output, expand and contract of each layer; then the output layer.
NUM_PRODUCTS = 4 * NUM_LAYERS + 1
BITS: dict[Precision, int] = {"int8-weights": 8, "int4-weights": 4}
both = pytest.mark.parametrize("precision", BITS)


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def product(weights_KN: np.ndarray, operator: str = "MatMul", **attributes: Any) -> onnx.ModelProto:
    """One product of `x` [rows, K] with weights, and a bias where there is one."""
    names = ["weights", "bias"] if operator == "Gemm" else ["weights"]
    bias = np.ones(weights_KN.shape[1], np.float32)
    constants = [
        numpy_helper.from_array(values, name)
        for name, values in zip(names, (weights_KN, bias), strict=False)
    ]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", *names], ["y"], "the_product", **attributes)],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", None])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", None])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@both
def test_every_product_with_weights_is_of_blocks(precision: Precision) -> None:
    """9 of 2 layers and the output layer: 32 weights share a scale, products are of int8."""
    graph = tiny_graph(precision).graph
    products = [node for node in graph.node if node.op_type == "MatMulNBits"]
    assert len(products) == NUM_PRODUCTS
    assert not {"MatMul", "Gemm"} & {node.op_type for node in graph.node}
    for node in products:
        found = attributes_of(node)
        assert found["bits"] == BITS[precision]
        assert found["block_size"] == BLOCK_SIZE == 32
        assert found["accuracy_level"] == 4


@both
def test_word_vectors_stay_float_where_they_are_looked_up(precision: Precision) -> None:
    """Once in float32 for the first layer, once in blocks for the last; no transposed copy."""
    graph = tiny_graph(precision).graph
    large = {tensor.name: tensor for tensor in graph.initializer if VOCAB_SIZE in tensor.dims}
    floats = [name for name, tensor in large.items() if tensor.data_type == TensorProto.FLOAT]
    assert floats[0] == "words.weight"
    assert [list(large[name].dims) for name in floats] == [[257, 64], [257, 2]], "2 scales a row"
    used = {name for node in graph.node for name in node.input}
    assert {tensor.name for tensor in graph.initializer} <= used, "nothing is left over"


@pytest.mark.parametrize(("bits", "steps"), [(8, 0.5), (4, 1.0)])
def test_weights_are_rounded_within_their_block(bits: int, steps: float) -> None:
    """By half a step of the block's scale; with 4 bits the end of the range is cut by one."""
    weights_KN = np.random.default_rng(0).normal(size=(64, 5)).astype(np.float32)
    weights_KN[32:] *= 100  # the second block of each column
    graph = quantize_blocks(product(weights_KN), bits).graph
    (node,) = graph.node
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    packed, scales = tensors[node.input[1]], tensors[node.input[2]].reshape(5, 2, 1)
    if bits == 4:
        packed = np.stack([packed & 15, packed >> 4], axis=-1)
    found = (packed.reshape(5, 2, 32).astype(np.float32) - 2 ** (bits - 1)) * scales
    error = np.abs(found - weights_KN.T.reshape(5, 2, 32))
    assert (error <= np.abs(scales) * steps * 1.001).all()
    largest = np.abs(weights_KN.T.reshape(5, 2, 32)).max(axis=2, keepdims=True)
    assert (np.abs(scales) <= largest / (2 ** (bits - 1) - 1) * 1.001).all()


@pytest.mark.parametrize(("bits", "limit"), [(8, 0.02), (4, 0.2)])
def test_rows_of_weights_need_not_fill_their_last_block(bits: int, limit: float) -> None:
    """40 inputs are a block and a quarter: errors below 2 % of the largest result, or 20 %."""
    rng = np.random.default_rng(0)
    weights_KN = rng.normal(size=(40, 24)).astype(np.float32)
    rows = rng.normal(size=(7, 40)).astype(np.float32)
    graph = quantize_blocks(product(weights_KN), bits).SerializeToString()
    (found,) = OnnxSession(graph, SessionOptions()).run({"x": rows}, ["y"])
    wanted = rows @ weights_KN
    assert 0 < np.abs(found - wanted).max() / np.abs(wanted).max() < limit


def test_product_that_cannot_be_quantised_is_refused_by_its_name() -> None:
    """A Gemm with a bias, which no decoder of ours has."""
    weights = np.ones((32, 32), np.float32)
    with pytest.raises(ExportError, match=r"1 matrix products .* stayed float: \['the_product'\]"):
        quantize_blocks(product(weights, "Gemm", transB=1), 8)


@both
def test_quantising_again_gives_the_same_bytes(precision: Precision) -> None:
    """And leaves the float graph as it was."""
    before = tiny_graph().SerializeToString()
    again = quantize_blocks(tiny_graph(), BITS[precision])
    assert again.SerializeToString() == tiny_graph(precision).SerializeToString()
    assert tiny_graph().SerializeToString() == before


@pytest.mark.parametrize("precision", map(in_blocks, BITS))
def test_cached_decoding_of_blocks_equals_recomputing(precision: Precision) -> None:
    """64 tokens of 3 rows, in slots used before and in chunks too: within 1e-4, no token changed.

    Each row's activations are rounded by themselves, so neighbours do not matter at all.
    """
    parity = measure_parity(tiny_gpt(), tiny_graph(precision), is_exact=False)
    assert parity.max_abs_error < 1e-4
    assert parity.network_changed_tokens < 0.5, "coarse, and no other network"
    assert parity == DecoderParity(
        parity.max_abs_error, 0.0, 0.0, 0.0, parity.network_changed_tokens
    )


@both
def test_blocks_stay_close_to_pytorch(precision: Precision) -> None:
    """Measured against the network: off by more than float32, by less with 8 bits than with 4."""
    parity = measure_parity(tiny_gpt(), tiny_graph(precision), is_exact=True)
    low, high = (1e-3, 0.5) if precision == "int8-weights" else (0.5, 5.0)
    assert low < parity.max_abs_error < high
