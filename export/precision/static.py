"""Static int8: the scales of activations are found once, on sample inputs, and kept in the graph.

Every product with weights becomes MatMulIntegerToFloat, of 8-bit activations and of weights with a
scale per output channel. Dynamic int8 looks for the largest value of a batch before each product;
here no value looks at another, so a row's answer does not depend on its neighbours, and no pass
over the activations is spent on a scale.

All channels of an activation share its scale, and transformers have a few channels that are many
times larger than the rest, which would be left with few steps. So each channel is divided by a
factor before it is rounded, and its row of the weights multiplied by it, which cancels
(SmoothQuant, Xiao et al. 2022).
"""
# ruff: noqa: N803, N806, N815 - suffixes are array layouts: K inputs and N outputs of a product

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.errors import ExportError
from export.graphs.files import copy_of
from export.graphs.graph import open_session

MICROSOFT = "com.microsoft"
LARGEST_UINT8, LARGEST_INT8 = 255, 127
# How much of a channel's size moves into the weights, as an exponent; measured: decision 0016.
STRENGTH = 0.8
SMALLEST_CHANNEL = 1e-3  # of the largest: one that is 0 on the samples may not be on other texts


@dataclass(frozen=True, slots=True)
class _Product:
    """A matrix product with weights, and the addition of its bias."""

    node: NodeProto
    weights: str
    weights_KN: np.ndarray
    bias: str
    output: str


@dataclass(frozen=True, slots=True)
class _Rounding:
    """The rounding of an activation to 8 bits: divided by `factors_K`, then by `scale`."""

    factors_K: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray


def quantize_static(
    model: onnx.ModelProto, calibration: Iterable[Mapping[str, np.ndarray]]
) -> onnx.ModelProto:
    """A copy of `model` whose float32 MatMul and Gemm with constant weights are int8.

    `calibration` are inputs like those to come, without padding, which would count too. Products
    with weights that an activation shares share its rounding.
    """
    products = _products_by_activation(model)
    if not products:
        raise ExportError("the graph multiplies nothing with weights, so int8 has nothing to round")
    ranges = _observe(model, list(products), calibration)
    quantized = copy_of(model)
    replaced: dict[str, list[NodeProto]] = {}  # by the first output of the node replaced
    for activation, group in products.items():
        rounding = _choose_rounding(*ranges[activation], [each.weights_KN for each in group])
        nodes, tensors = _rounded_activation(activation, rounding)
        for product in group:
            node, weights = _integer_product(activation, product, rounding.factors_K)
            replaced[product.output] = []
            replaced[product.node.output[0]] = [*nodes, node]
            tensors += weights
            nodes = []
        quantized.graph.initializer.extend(tensors)
    _replace(quantized.graph, replaced)
    if all(opset.domain != MICROSOFT for opset in quantized.opset_import):
        quantized.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return quantized


def _products_by_activation(model: onnx.ModelProto) -> dict[str, list[_Product]]:
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    uses = Counter(name for node in model.graph.node for name in node.input)
    uses.update(output.name for output in model.graph.output)
    additions = {
        node.input[side]: (node.output[0], node.input[1 - side])
        for node in model.graph.node
        if node.op_type == "Add"
        for side in (0, 1)
        if node.input[1 - side] in weights and len(weights[node.input[1 - side]].dims) == 1
    }
    products: dict[str, list[_Product]] = defaultdict(list)
    for node in model.graph.node:
        if node.op_type not in ("MatMul", "Gemm") or node.input[1] not in weights:
            continue
        matrix = numpy_helper.to_array(weights[node.input[1]])
        if matrix.ndim != 2 or matrix.dtype != np.float32:
            continue
        options = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if options.get("transA", 0) or options.get("alpha", 1) != 1 or options.get("beta", 1) != 1:
            raise ExportError(f"{node.name}: a scaled product, or of transposed rows, stays float")
        output, bias = node.output[0], node.input[2] if len(node.input) > 2 else ""
        if not bias and uses[output] == 1 and output in additions:
            output, bias = additions[output]
        weights_KN = matrix.T if options.get("transB", 0) else matrix
        products[node.input[0]].append(_Product(node, node.input[1], weights_KN, bias, output))
    return dict(products)


def _observe(
    model: onnx.ModelProto,
    activations: Sequence[str],
    calibration: Iterable[Mapping[str, np.ndarray]],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Least and largest value [K] of each channel of activations [..., K] of the float graph."""
    probe = copy_of(model)
    known = {end.name for end in model.graph.input}
    computed = [name for name in activations if name not in known]
    outputs = {output.name for output in model.graph.output}
    probe.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        for name in computed
        if name not in outputs
    )
    session = open_session(probe)
    inputs = [spec.name for spec in session.signature.inputs]
    ranges: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for feed in calibration:
        values = dict(feed)
        if computed:
            arrays = session.run({name: feed[name] for name in inputs}, computed)
            values |= zip(computed, arrays, strict=True)
        for name in activations:
            rows = values[name].reshape(-1, values[name].shape[-1])
            low, high = rows.min(axis=0), rows.max(axis=0)
            known_low, known_high = ranges.get(name, (low, high))
            ranges[name] = np.minimum(low, known_low), np.maximum(high, known_high)
    if len(ranges) != len(activations):
        raise ExportError("static int8 needs sample inputs to find the scales of activations")
    return ranges


def _choose_rounding(
    low_K: np.ndarray, high_K: np.ndarray, weights: Sequence[np.ndarray]
) -> _Rounding:
    """All that was observed has a step of its own: clipping measured worse."""
    size_K = _lifted(np.maximum(np.abs(low_K), np.abs(high_K)))
    weight_size_K = _lifted(np.max([np.abs(each).max(axis=1) for each in weights], axis=0))
    factors_K = size_K**STRENGTH / weight_size_K ** (1 - STRENGTH)
    factors_K = (factors_K / np.exp(np.log(factors_K).mean())).astype(np.float32)
    low, high = min(0.0, (low_K / factors_K).min()), max(0.0, (high_K / factors_K).max())
    scale = np.float32((high - low) / LARGEST_UINT8 or 1.0)
    return _Rounding(factors_K, np.asarray(scale), np.asarray(round(-low / scale), np.uint8))


def _lifted(size_K: np.ndarray) -> np.ndarray:
    largest = float(size_K.max()) or 1.0
    lifted_K: np.ndarray = np.maximum(size_K, SMALLEST_CHANNEL * largest)
    return lifted_K


def _rounded_activation(
    name: str, rounding: _Rounding
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Nodes that compute `name`.int8, and the tensors they read."""
    factors, scale, zero_point = f"{name}.factors", f"{name}.scale", f"{name}.zero_point"
    divided, rounded = f"{name}.divided", f"{name}.int8"
    nodes = [
        helper.make_node("Mul", [name, factors], [divided], divided),
        helper.make_node("QuantizeLinear", [divided, scale, zero_point], [rounded], rounded),
    ]
    return nodes, [
        numpy_helper.from_array(1 / rounding.factors_K, factors),
        numpy_helper.from_array(rounding.scale, scale),
        numpy_helper.from_array(rounding.zero_point, zero_point),
    ]


def _integer_product(
    activation: str, product: _Product, factors_K: np.ndarray
) -> tuple[NodeProto, list[TensorProto]]:
    """The product with weights of its own: the same ones may meet another activation."""
    scaled_KN = product.weights_KN * factors_K[:, None]
    scale_N = (np.abs(scaled_KN).max(axis=0) / LARGEST_INT8).astype(np.float32)
    scale_N[scale_N == 0] = 1.0
    rounded_KN = np.rint(scaled_KN / scale_N).astype(np.int8)
    name = f"{product.weights}.{activation}"
    inputs = [f"{activation}.int8", f"{name}.int8", f"{activation}.scale", f"{name}.scale"]
    inputs += [f"{activation}.zero_point", "", product.bias]
    node = helper.make_node(
        "MatMulIntegerToFloat", inputs, [product.output], product.node.name, domain=MICROSOFT
    )
    return node, [
        numpy_helper.from_array(rounded_KN, f"{name}.int8"),
        numpy_helper.from_array(scale_N, f"{name}.scale"),
    ]


def _replace(graph: onnx.GraphProto, replaced: Mapping[str, list[NodeProto]]) -> None:
    """Replace the nodes with certain outputs, and drop weights without a reader."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        nodes += replaced.get(node.output[0], [NodeProto.FromString(node.SerializeToString())])
    read = {name for node in nodes for name in node.input}
    tensors = [
        TensorProto.FromString(tensor.SerializeToString())
        for tensor in graph.initializer
        if tensor.name in read
    ]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(tensors)
