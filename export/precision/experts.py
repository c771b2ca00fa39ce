"""Mixtures of experts with weights of 8 bits: `MoE` nodes as `QMoE`, in blocks of inputs.

The CPU's kernel rounds each token's values by itself, so that no row depends on its neighbours.
"""

# ruff: noqa: N806 - suffixes are array layouts: E experts, N outputs, K inputs, G blocks

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from export.graphs.files import copy_of
from export.graphs.tensors import array_of

OPERATOR, ROUNDED = "MoE", "QMoE"
BLOCK = 32  # inputs with one scale
LARGEST, ZERO_POINT = 127, 128  # of weights, which are unsigned
WEIGHTS = (2, 4)  # places of both products' weights among the inputs of `MoE`; biases are behind


def with_rounded_experts(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose experts are in 8 bits, where their sizes are of whole blocks."""
    copied = copy_of(model)
    graph = copied.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    replaced: dict[str, list[TensorProto]] = {}
    for node in graph.node:
        if node.op_type != OPERATOR:
            continue
        weights = [stored[node.input[place]] for place in WEIGHTS]
        if any(weight.dims[-1] % BLOCK for weight in weights):
            continue
        for weight in weights:
            replaced[weight.name] = list(_rounded(weight))
        _replace(node)
    kept = [each for tensor in graph.initializer for each in replaced.get(tensor.name, [tensor])]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return copied


def _replace(node: NodeProto) -> None:
    """Make a node one of rounded weights, each of which has scales behind it."""
    given = [*node.input, *[""] * (6 - len(node.input))]
    first, first_bias, second, second_bias = given[2:6]
    of_first = f"{first}.uint8", f"{first}.scale", first_bias
    of_second = f"{second}.uint8", f"{second}.scale", second_bias
    node.input[:] = [*given[:2], *of_first, *of_second]
    node.op_type = ROUNDED
    settings = {"expert_weight_bits": 8, "block_size": BLOCK}
    node.attribute.extend(helper.make_attribute(*each) for each in settings.items())


def _rounded(weight: TensorProto) -> Iterator[TensorProto]:
    """uint8 [E, N, K] and the float32 scales [E, N, G]."""
    values_ENK = array_of(weight)
    blocks = values_ENK.reshape(*values_ENK.shape[:2], -1, BLOCK)
    scale_ENG = np.abs(blocks).max(axis=-1) / LARGEST
    scale_ENG[scale_ENG == 0] = 1.0
    steps = np.rint(blocks / scale_ENG[..., None]) + ZERO_POINT
    yield numpy_helper.from_array(
        steps.astype(np.uint8).reshape(values_ENK.shape), f"{weight.name}.uint8"
    )
    yield numpy_helper.from_array(scale_ENG.astype(np.float32), f"{weight.name}.scale")
