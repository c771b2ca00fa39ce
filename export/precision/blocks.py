"""Weights in blocks of 8 or 4 bits (com.microsoft.MatMulNBits).

Weights and activations have a scale for each block of a row, so no row depends on another. What it
costs is measured by the parity checks and kept in the manifest.
"""

import logging
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from export.errors import ExportError
from export.graphs.files import copy_of

BLOCK_SIZE = 32  # weights that share a scale
INT8_ACTIVATIONS = 4  # MatMulNBits' accuracy_level: products are of int8


def quantize_blocks(model: onnx.ModelProto, bits: int) -> onnx.ModelProto:
    """A copy of `model` whose matrix products with weights are MatMulNBits of 4 or 8 bits."""
    quantizer = _block_quantizer()(
        with_products_as_matmul(model),
        bits=bits,
        block_size=BLOCK_SIZE,
        is_symmetric=True,
        accuracy_level=INT8_ACTIVATIONS,
    )
    quantizer.process()
    quantized: onnx.ModelProto = quantizer.model.model
    _check_no_float_products(quantized)
    return quantized


def _block_quantizer() -> Any:  # noqa: ANN401 - a class without types
    """Importing its module sets up logging for the whole process, and it logs a line per node."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    from onnxruntime.quantization import matmul_nbits_quantizer

    root.handlers[:] = handlers
    root.setLevel(level)
    matmul_nbits_quantizer.logger.setLevel(logging.WARNING)
    return matmul_nbits_quantizer.MatMulNBitsQuantizer


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
            product = onnx.helper.make_node("MatMul", [node.input[0], name], node.output, node.name)
            node.CopyFrom(product)
    return copied


def _check_no_float_products(model: onnx.ModelProto) -> None:
    weights = {tensor.name for tensor in model.graph.initializer}
    left = [
        node.name
        for node in model.graph.node
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights
    ]
    if left:
        raise ExportError(f"{len(left)} matrix products with weights stayed float: {left[:3]}")
