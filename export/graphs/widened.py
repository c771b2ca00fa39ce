"""A graph's values, computed in float32: what a CPU without bfloat16 can check of a graph for CUDA.

Every weight keeps its rounded value and every node its place; only the type in which values are
held is wider. So what is compared with PyTorch is the graph that is written, but for the rounding
of what it computes in between. docs/how-to/cuda.md says what was verified on CUDA.
"""

import onnx
from onnx import AttributeProto, GraphProto, TensorProto, numpy_helper

from export.graphs.files import copy_of
from export.graphs.tensors import array_of

NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` in which float16 and bfloat16 are float32, weights and values alike."""
    copied = copy_of(model)
    graph: GraphProto = copied.graph
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            _widen_attribute(node.op_type, attribute)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in NARROW:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    return copied


def _widen_attribute(op_type: str, attribute: AttributeProto) -> None:
    if attribute.type == AttributeProto.TENSOR:
        _widen_tensor(attribute.t)
    is_type = op_type == "Cast" and attribute.name == "to"
    if is_type and attribute.i in NARROW:
        attribute.i = TensorProto.FLOAT


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in NARROW:
        values = array_of(tensor).astype("float32")
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
