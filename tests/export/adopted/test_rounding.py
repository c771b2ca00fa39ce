"""The precision of a graph is told by its operators."""

import pytest
from onnx import ModelProto, helper

from export.adopted.rounding import rounded_precision, rounds_activations


def graph_of(operator: str, **attributes: int) -> ModelProto:
    node = helper.make_node(operator, ["a"], ["b"], "", None, "", None, **attributes)
    return helper.make_model(helper.make_graph([node], "g", [], []))


@pytest.mark.parametrize(
    ("model", "precision", "rounds"),
    [
        (graph_of("MatMul"), None, False),
        (graph_of("MatMulNBits", bits=4), "int4-weights", False),
        (graph_of("MatMulNBits", bits=8), "int8-weights", False),
        (graph_of("MatMulNBits", bits=4, accuracy_level=4), "int4-weights", True),
        (graph_of("DynamicQuantizeLinear"), "int8", True),
        (graph_of("QGemm"), "int8", False),
    ],
)
def test_the_operators_say_the_precision(
    model: ModelProto, precision: str | None, rounds: bool
) -> None:
    assert rounded_precision(model) == precision
    assert rounds_activations(model) == rounds
