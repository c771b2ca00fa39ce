"""The precision of a graph that another program rounded, by its operators. Imports no PyTorch."""

from collections.abc import Mapping

from onnx import ModelProto, NodeProto

from service.contract.manifest import Precision

# Operators that quantize activations by one scale for the whole run.
SHARED_SCALE = frozenset(("DynamicQuantizeLinear", "DynamicQuantizeMatMul"))
ROUNDED: Mapping[str, Precision] = {
    **dict.fromkeys((*SHARED_SCALE, "MatMulInteger", "MatMulIntegerToFloat"), "int8"),
    **dict.fromkeys(("QLinearMatMul", "QGemm", "QAttention"), "int8"),
    "MatMulBnb4": "int4-weights",
}
BLOCKS = "MatMulNBits"
INT8_ACTIVATIONS = 4  # its accuracy_level that rounds activations too


def rounded_precision(model: ModelProto) -> Precision | None:
    """The precision by the first operator that computes with rounded numbers; None without any."""
    for node in model.graph.node:
        if node.op_type == BLOCKS:
            return "int4-weights" if _attribute(node, "bits", 4) <= 4 else "int8-weights"
        if node.op_type in ROUNDED:
            return ROUNDED[node.op_type]
    return None


def rounds_activations(model: ModelProto) -> bool:
    """Whether activations are rounded while a graph runs."""
    return any(
        node.op_type in SHARED_SCALE
        or (node.op_type == BLOCKS and _attribute(node, "accuracy_level", 0) == INT8_ACTIVATIONS)
        for node in model.graph.node
    )


def _attribute(node: NodeProto, name: str, default: int) -> int:
    return next((int(each.i) for each in node.attribute if each.name == name), default)
