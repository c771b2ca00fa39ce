"""Weights in blocks of 8 or 4 bits (com.microsoft.MatMulNBits).

Weights and activations have a scale for each block of a row, so no row depends on another. What it
costs is measured by the parity checks and kept in the manifest.
"""
# ruff: noqa: N806 - suffixes are array layouts: K inputs, N outputs of a product, B blocks

from collections.abc import Callable, Container
from functools import partial

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.errors import ExportError
from export.graphs.files import copy_of
from export.precision.gptq import Rounded, round_nearest

MICROSOFT = "com.microsoft"
# Weights that share a scale. With 64 or more, ONNX Runtime adds up products in another order for
# one row than for several, so a row would depend on its neighbours: decision 0036.
BLOCK_SIZE = 32
INT8_ACTIVATIONS = 4  # MatMulNBits' accuracy_level: products are of int8
RoundWeights = Callable[[np.ndarray], Rounded]  # of weights [K, N]


def quantize_blocks(
    model: onnx.ModelProto, bits: int, round_weights: RoundWeights | None = None
) -> onnx.ModelProto:
    """A copy of `model` whose matrix products with weights are MatMulNBits of 4 or 8 bits.

    Weights are rounded to the nearest step unless `round_weights` does better.
    """
    if round_weights is None:
        round_weights = partial(round_nearest, bits=bits, block_size=BLOCK_SIZE)
    quantized = with_products_as_matmul(model)
    graph = quantized.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[NodeProto] = []
    tensors: list[TensorProto] = []
    for node in graph.node:
        if not is_product(node, weights):
            nodes.append(node)
            continue
        rounded = round_weights(numpy_helper.to_array(weights[node.input[1]]))
        constants = _packed(node.name, rounded, bits)
        nodes.append(_product(node, rounded, constants, bits))
        tensors += constants
    read = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in (*graph.initializer, *tensors) if tensor.name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    if MICROSOFT not in {opset.domain for opset in quantized.opset_import}:
        quantized.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    _check_no_float_products(quantized)
    return quantized


def with_products_as_matmul(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without a Gemm of transposed weights: quantisers want them the other way round.

    There is one where the output layer shares the word vectors.
    """
    copied = copy_of(model)
    weights = {tensor.name: tensor for tensor in copied.graph.initializer}
    for node in copied.graph.node:
        is_transposed = any(a.name == "transB" and a.i for a in node.attribute)
        if node.op_type == "Gemm" and is_transposed and len(node.input) == 2:
            name = f"{node.input[1]}.transposed"
            matrix = numpy_helper.to_array(weights[node.input[1]])
            copied.graph.initializer.append(
                numpy_helper.from_array(np.ascontiguousarray(matrix.T), name)
            )
            product = helper.make_node("MatMul", [node.input[0], name], node.output, node.name)
            node.CopyFrom(product)
    return copied


def is_product(node: NodeProto, weights: Container[str]) -> bool:
    """Whether a node multiplies an activation with weights."""
    return node.op_type == "MatMul" and node.input[1] in weights


def _product(
    node: NodeProto, rounded: Rounded, constants: list[TensorProto], bits: int
) -> NodeProto:
    num_inputs, num_outputs = rounded.steps_KN.shape
    return helper.make_node(
        "MatMulNBits",
        [node.input[0], *(tensor.name for tensor in constants)],
        node.output,
        node.name,
        domain=MICROSOFT,
        K=num_inputs,
        N=num_outputs,
        bits=bits,
        block_size=BLOCK_SIZE,
        accuracy_level=INT8_ACTIVATIONS,
    )


def _packed(name: str, rounded: Rounded, bits: int) -> list[TensorProto]:
    """uint8 [N, B, bytes of a block], zero in the middle of the range, and scales [N, B].

    Of two weights of 4 bits, the first is the lower half of their byte.
    """
    num_inputs, num_outputs = rounded.steps_KN.shape
    zero, num_blocks = 2 ** (bits - 1), len(rounded.scales_BN)
    values: np.ndarray = np.full((num_outputs, num_blocks * BLOCK_SIZE), zero, np.uint8)
    values[:, :num_inputs] = (rounded.steps_KN.astype(np.int16) + zero).T
    if bits == 4:
        values = values[:, 0::2] | values[:, 1::2] << 4
    blob = values.reshape(num_outputs, num_blocks, -1)
    scales_NB = np.ascontiguousarray(rounded.scales_BN.T)
    return [
        numpy_helper.from_array(blob, f"{name}.int{bits}"),
        numpy_helper.from_array(scales_NB, f"{name}.scales"),
    ]


def _check_no_float_products(model: onnx.ModelProto) -> None:
    weights = {tensor.name for tensor in model.graph.initializer}
    left = [
        node.name
        for node in model.graph.node
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights
    ]
    if left:
        raise ExportError(f"{len(left)} matrix products with weights stayed float: {left[:3]}")
