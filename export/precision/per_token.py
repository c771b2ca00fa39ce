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
# ruff: noqa: N806 - suffixes are array layouts: K inputs, N outputs of a product

from collections.abc import Container, Iterator

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.graphs.tensors import derived, slabs
from export.precision.blockwise import MICROSOFT, is_product, with_products_as_matmul
from export.precision.tied_tables import share_tied_tables

LARGEST = 127  # of a rounded weight or activation, on both sides of zero
ZERO_POINT = 128  # of activations: MLAS is fastest where they are unsigned
SHARED: dict[str, np.ndarray] = {
    "int8.last_axis": np.array([-1], np.int64),
    "int8.step": np.array(1 / LARGEST, np.float32),
    "int8.zero_point": np.array(ZERO_POINT, np.uint8),
}
LAST_AXIS, STEP, ZERO = SHARED


def quantize_rows(model: onnx.ModelProto, left_float: Container[int] = ()) -> onnx.ModelProto:
    """A copy of `model` whose matrix products with weights are int8, token by token.

    Products at the places of `left_float` stay float.
    """
    copied = with_products_as_matmul(model)
    graph = copied.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    rounded: dict[str, str] = {}  # activations that are there as uint8, and their largest values
    nodes: list[NodeProto] = []
    constants = [numpy_helper.from_array(value, name) for name, value in SHARED.items()]
    place = -1
    for node in graph.node:
        if not is_product(node, weights):
            nodes.append(node)
            continue
        place += 1
        if place in left_float:
            nodes.append(node)
            continue
        activation, name = node.input
        if activation not in rounded:
            rounded[activation] = f"{activation}.largest"
            nodes += round_rows(activation, rounded[activation])
        constants += _rounded(weights[name])
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


def _rounded(weight: TensorProto) -> list[TensorProto]:
    """int8 [K, N] and the float32 scale [N] of the columns of a weight."""
    num_inputs, num_outputs = weight.dims

    def make() -> tuple[np.ndarray, np.ndarray]:
        rounded_KN: np.ndarray = np.empty((num_inputs, num_outputs), np.int8)
        scale_N: np.ndarray = np.empty(num_outputs, np.float32)
        for columns, weight_KC in slabs(weight):
            scale_C = np.abs(weight_KC).max(axis=0) / LARGEST
            scale_C[scale_C == 0] = 1.0
            rounded_KN[:, columns] = np.rint(weight_KC / scale_C).astype(np.int8)
            scale_N[columns] = scale_C
        return rounded_KN, scale_N

    rounded = f"{weight.name}.int8", weight.dims, np.int8
    return derived(
        weight, "rows", [rounded, (f"{weight.name}.scale", [num_outputs], np.float32)], make
    )
