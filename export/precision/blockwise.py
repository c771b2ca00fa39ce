"""Weights in blocks of 8 or 4 bits (com.microsoft.MatMulNBits).

Weights and activations have a scale for each block of a row, so no row depends on another. What it
costs is measured by the parity checks and kept in the manifest.
"""
# ruff: noqa: N806 - suffixes are array layouts: K inputs, N outputs of a product, B blocks

from collections.abc import Callable, Container
from functools import partial

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from export.errors import ExportError
from export.graphs.files import copy_of
from export.graphs.tensors import derived, slabs, transposed
from export.precision.gptq import Rounded, round_nearest

MICROSOFT = "com.microsoft"
# Weights that share a scale. With 64 or more, ONNX Runtime adds up products in another order for
# one row than for several, so a row would depend on its neighbours: decision 0036.
BLOCK_SIZE = 32
TOGETHER = 2**24  # weights that are rounded at once: 64 MiB in float32
INT8_ACTIVATIONS = 4  # MatMulNBits' accuracy_level: products are of int8
RoundColumns = Callable[[np.ndarray], Rounded]  # of some columns of weights [K, N]
# Of a product's weights, before any of them is rounded: what to round their columns by.
RoundWeights = Callable[[TensorProto], RoundColumns]


def quantize_blocks(
    model: onnx.ModelProto,
    bits: int,
    round_weights: RoundWeights | None = None,
    left_float: Container[int] = (),
) -> onnx.ModelProto:
    """A copy of `model` whose matrix products with weights are MatMulNBits of 4 or 8 bits.

    Weights are rounded to the nearest step unless `round_weights` does better. Products at the
    places of `left_float` stay float.
    """
    if round_weights is None:
        round_weights = _nearest(bits)
    quantized = with_products_as_matmul(model)
    graph = quantized.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    nodes: list[NodeProto] = []
    tensors: list[TensorProto] = []
    products = [node for node in graph.node if is_product(node, weights)]
    left = {node.name for place, node in enumerate(products) if place in left_float}
    for node in graph.node:
        if not is_product(node, weights) or node.name in left:
            nodes.append(node)
            continue
        constants = _packed(node, weights[node.input[1]], bits, round_weights)
        nodes.append(_product(node, weights[node.input[1]], constants, bits))
        tensors += constants
    read = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in (*graph.initializer, *tensors) if tensor.name in read]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    if MICROSOFT not in {opset.domain for opset in quantized.opset_import}:
        quantized.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    _check_no_float_products(quantized, left)
    return quantized


def _nearest(bits: int) -> RoundWeights:
    return lambda _: partial(round_nearest, bits=bits, block_size=BLOCK_SIZE)


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
            copied.graph.initializer.append(transposed(weights[node.input[1]], name))
            product = helper.make_node("MatMul", [node.input[0], name], node.output, node.name)
            node.CopyFrom(product)
    return copied


def is_product(node: NodeProto, weights: Container[str]) -> bool:
    """Whether a node multiplies an activation with weights."""
    return node.op_type == "MatMul" and node.input[1] in weights


def _product(
    node: NodeProto, weight: TensorProto, constants: list[TensorProto], bits: int
) -> NodeProto:
    num_inputs, num_outputs = weight.dims
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


def _packed(
    node: NodeProto, weight: TensorProto, bits: int, round_weights: RoundWeights
) -> list[TensorProto]:
    """uint8 [N, B, bytes of a block], zero in the middle of the range, and scales [N, B].

    Of two weights of 4 bits, the first is the lower half of their byte.
    """
    num_inputs, num_outputs = weight.dims
    num_blocks = -(-num_inputs // BLOCK_SIZE)
    shape = num_outputs, num_blocks, BLOCK_SIZE * bits // 8

    def make() -> tuple[np.ndarray, np.ndarray]:
        round_columns = round_weights(weight)
        blob: np.ndarray = np.empty(shape, np.uint8)
        scales_NB: np.ndarray = np.empty((num_outputs, num_blocks), np.float32)
        for columns, weight_KC in slabs(weight, TOGETHER):
            rounded = round_columns(weight_KC)
            blob[columns] = _bytes_of(rounded, bits).reshape(-1, *shape[1:])
            scales_NB[columns] = rounded.scales_BN.T
        return blob, scales_NB

    likes = [
        (f"{node.name}.int{bits}", shape, np.uint8),
        (f"{node.name}.scales", shape[:2], np.float32),
    ]
    return derived(weight, f"blocks of {bits}", likes, make)


def _bytes_of(rounded: Rounded, bits: int) -> np.ndarray:
    """[N, bytes of a row]."""
    num_inputs, num_outputs = rounded.steps_KN.shape
    zero, num_blocks = 2 ** (bits - 1), len(rounded.scales_BN)
    values: np.ndarray = np.full((num_outputs, num_blocks * BLOCK_SIZE), zero, np.uint8)
    values[:, :num_inputs] = (rounded.steps_KN.astype(np.int16) + zero).T
    return values if bits == 8 else values[:, 0::2] | values[:, 1::2] << 4


def _check_no_float_products(model: onnx.ModelProto, meant: Container[str]) -> None:
    weights = {tensor.name for tensor in model.graph.initializer}
    left = [
        node.name
        for node in model.graph.node
        if node.op_type in ("MatMul", "Gemm")
        and node.input[1] in weights
        and node.name not in meant
    ]
    if left:
        raise ExportError(f"{len(left)} matrix products with weights stayed float: {left[:3]}")
