"""int8 for decoders: a scale per output channel for weights, and one per token for activations.

A token's largest value is found when the graph runs, so no calibration is needed, and no
token's rounding depends on another: neither on its neighbours in the batch nor on whether its
prompt was computed at once or in chunks. (ONNX's DynamicQuantizeLinear looks for the largest of
the whole batch.) Yao et al. 2022, ZeroQuant, section 3.2, call it token-wise quantisation.

    x -> Abs -> ReduceMax -> largest [.., 1];  x / largest -> QuantizeLinear -> uint8 [.., K]
    MatMulIntegerToFloat with int8 [K, N] -> times largest -> float32 [.., N]

A table of word vectors that is the output layer too is held once (`tied_tables.py`).

A token of zeros is divided by zero; what becomes of that is a number, and then is multiplied by
zero. Weights are rounded to +-127, their products fit int32 up to K = 66,000.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: K inputs, N outputs of a product

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from export.precision.blockwise import with_products_as_matmul
from export.precision.tied_tables import share_tied_tables

MICROSOFT = "com.microsoft"
LARGEST = 127  # of a rounded weight or activation, on both sides of zero
ZERO_POINT = 128  # of activations: MLAS is fastest where they are unsigned
SHARED: dict[str, np.ndarray] = {
    "int8.last_axis": np.array([-1], np.int64),
    "int8.step": np.array(1 / LARGEST, np.float32),
    "int8.zero_point": np.array(ZERO_POINT, np.uint8),
}
LAST_AXIS, STEP, ZERO = SHARED


def quantize_rows(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` whose matrix products with weights are int8, token by token."""
    copied = with_products_as_matmul(model)
    graph = copied.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    rounded: dict[str, str] = {}  # activations that are there as uint8, and their largest values
    nodes: list[NodeProto] = []
    constants = [numpy_helper.from_array(value, name) for name, value in SHARED.items()]
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            nodes.append(node)
            continue
        activation, name = node.input
        if activation not in rounded:
            rounded[activation] = f"{activation}.largest"
            nodes += round_rows(activation, rounded[activation])
        weight_KN, scale_N = _round_columns(numpy_helper.to_array(weights[name]))
        constants.append(numpy_helper.from_array(weight_KN, f"{name}.int8"))
        constants.append(numpy_helper.from_array(scale_N, f"{name}.scale"))
        nodes += product_of_rows(node, name, rounded[activation])
    del graph.node[:]
    graph.node.extend(nodes)
    left = {value for node in nodes for value in node.input}
    kept = [tensor for tensor in (*graph.initializer, *constants) if tensor.name in left]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    share_tied_tables(copied)
    if MICROSOFT not in {opset.domain for opset in copied.opset_import}:
        copied.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return copied


def round_rows(activation: str, largest: str) -> Iterator[NodeProto]:
    """uint8 `activation`.uint8, whose value 128 + 127 stands for the row's largest."""
    size, share, result = (f"{activation}.{part}" for part in ("size", "share", "uint8"))
    yield helper.make_node("Abs", [activation], [size], size)
    yield helper.make_node("ReduceMax", [size, LAST_AXIS], [largest], largest, keepdims=1)
    yield helper.make_node("Div", [activation, largest], [share], share)
    yield helper.make_node("QuantizeLinear", [share, STEP, ZERO], [result], result)


def product_of_rows(node: NodeProto, weight: str, largest: str) -> Iterator[NodeProto]:
    activation, output = node.input[0], node.output[0]
    inputs = [f"{activation}.uint8", f"{weight}.int8", STEP, f"{weight}.scale", ZERO]
    share = f"{output}.share"
    yield helper.make_node("MatMulIntegerToFloat", inputs, [share], node.name, domain=MICROSOFT)
    yield helper.make_node("Mul", [share, largest], [output], f"{node.name}.rescaled")


def _round_columns(weight_KN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 [K, N] and the float32 scale [N] of its columns."""
    scale_N = np.abs(weight_KN).max(axis=0) / LARGEST
    scale_N[scale_N == 0] = 1.0
    return np.rint(weight_KN / scale_N).astype(np.int8), scale_N.astype(np.float32)
