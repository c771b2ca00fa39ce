"""A small graph, written for a measurement: it takes no time worth counting."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

OPSET = 21


def write_sums(repository: Path, name: str) -> None:
    """A model from rows of two numbers, INT64 [-1, 2], to their sums, [-1, 1]."""
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)],
        name,
        [helper.make_tensor_value_info("x", TensorProto.INT64, ["rows", 2])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["rows", 1])],
        [axes],
    )
    folder = repository / graph.name / "1"
    folder.mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
