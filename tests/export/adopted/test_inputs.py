"""A graph that another program wrote takes the server's inputs, or is refused by the one it has."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from export.adopted.inputs import given_by_the_server, has_one_row, originals
from export.errors import ExportError

IDS, MASK, POSITIONS = "input_ids", "attention_mask", "position_ids"


def graph_of(
    *names: str, kind: int = TensorProto.INT64, dims: tuple[str | int, str | int] = ("b", "s")
) -> onnx.ModelProto:
    """A graph that gives the sum of what it takes."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Sum", [f"{name}.float" for name in names], ["logits"])]
    for name in names:
        cast = helper.make_node("Cast", [name], [f"{name}.float"], to=TensorProto.FLOAT)
        nodes.insert(0, cast)
    graph = helper.make_graph(
        nodes,
        "g",
        [value(name, kind, list(dims)) for name in names],
        [value("logits", TensorProto.FLOAT, list(dims))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.INT32])
@pytest.mark.parametrize("others", [(), (MASK,), (POSITIONS,), (MASK, POSITIONS)])
def test_an_edited_graph_gives_what_it_gave(others: tuple[str, ...], kind: int, first: int) -> None:
    model, edited = (graph_of(IDS, *others, kind=kind) for _ in range(2))
    names = given_by_the_server(edited, first)
    assert names == [IDS, *(name for name in others if name != POSITIONS)]
    onnx.checker.check_model(edited)
    batch = {IDS: np.array([[5, 6, 7]]), MASK: np.array([[1, 1, 1]])}
    (before,) = onnxruntime.InferenceSession(model.SerializeToString()).run(
        None, originals(model, batch, first)
    )
    given = {name: batch[name] for name in names}
    (after,) = onnxruntime.InferenceSession(edited.SerializeToString()).run(None, given)
    assert np.array_equal(before, after)
    assert np.array_equal(originals(model, batch, first).get(POSITIONS, [[first]])[0][:1], [first])


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (graph_of(IDS, "task_id"), "takes the input 'task_id', and the server gives a text as"),
        (graph_of(MASK), "takes the inputs"),
        (graph_of(IDS, dims=("b", 128)), "takes 128 tokens, no more and no fewer"),
        (graph_of(IDS, dims=(4, "s")), "takes 4 texts, no more and no fewer"),
        (graph_of(IDS, kind=TensorProto.FLOAT), "is FLOAT of 2 axes"),
    ],
)
def test_an_input_that_the_server_does_not_give_is_named(model: onnx.ModelProto, why: str) -> None:
    with pytest.raises(ExportError, match=why):
        given_by_the_server(model)


def test_a_graph_of_one_row_is_told() -> None:
    assert has_one_row(graph_of(IDS, dims=(1, "s")))
    assert not has_one_row(graph_of(IDS))


def test_a_weight_that_is_listed_as_an_input_is_no_row() -> None:
    """Graphs of IR versions before 4 list their weights as inputs."""
    model = graph_of(IDS)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 2]))
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1, 2], [0, 0]))
    assert not has_one_row(model)
