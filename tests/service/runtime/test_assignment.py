"""Which nodes ONNX Runtime gave to the CPU, and when that is refused."""

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.contract.session_tuning import SessionTuning
from service.errors import LoadError
from service.runtime.assignment import MAX_NAMED, AssignedNode, fallback
from service.runtime.session import OnnxSession, SessionOptions

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
RECORDED = SessionTuning(
    session_entries=(("session.record_ep_graph_assignment_info", "1"),),
    graph_level=2,  # so that nodes stay as they are
)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A product whose bias has the shape of its input, and a fused operator: `z` = gelu(x w)."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="/shape"),
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"], name="/zeros"),
        helper.make_node("MatMul", ["x", "w"], ["product"], name="/layer0/mlp/MatMul"),
        helper.make_node("Add", ["product", "zeros"], ["y"], name="/add"),
        helper.make_node("Gelu", ["y"], ["z"], name="/layer0/gelu", domain="com.microsoft"),
    ]
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["r", 4]) for name in "xz")
    weight = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "some", [x], [z], [weight]), opset_imports=opsets, ir_version=8
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    return path


def node(operator: str, provider: str, name: str = "") -> AssignedNode:
    return AssignedNode(name or f"/{operator}", operator, provider)


def test_a_graph_on_cuda_with_its_shapes_on_the_cpu_is_as_it_should_be() -> None:
    nodes = [
        *(node(each, CPU) for each in ("Shape", "Gather", "Unsqueeze", "Concat", "Cast", "Range")),
        *(node(each, CUDA) for each in ("MatMul", "com.microsoft.MultiHeadAttention", "Gather")),
        node("TRTKernel_graph_0", "TensorrtExecutionProvider"),
    ]
    assert fallback(nodes) == ""
    assert fallback([]) == ""


def test_nodes_that_compute_on_the_cpu_are_named_and_counted() -> None:
    on_cuda = [node("MatMul", CUDA, f"/{number}") for number in range(118)]
    nodes = [
        *on_cuda,
        node("Shape", CPU),
        node("MatMulInteger", CPU, "/layer0/mlp"),
        node("com.microsoft.GroupQueryAttention", CPU, "/layer0/attention"),
    ]
    assert fallback(nodes) == (
        "2 of 121 nodes would run on the CPU: /layer0/mlp (MatMulInteger), "
        "/layer0/attention (com.microsoft.GroupQueryAttention)"
    )
    assert fallback([node("Erf", CPU, "")]).endswith("/Erf (Erf)")
    assert fallback([AssignedNode("", "Erf", CPU)]).endswith("a node without a name (Erf)")


def test_a_message_names_the_first_nodes_only() -> None:
    nodes = [node("Erf", CPU, f"/{number}") for number in range(MAX_NAMED + 2)]
    assert fallback(nodes).startswith("7 of 7 nodes would run on the CPU: /0 (Erf), /1 (Erf), ")
    assert fallback(nodes).endswith("/4 (Erf) and 2 more")
    assert fallback(nodes[:MAX_NAMED]).endswith("/4 (Erf)")


def test_an_operator_of_another_domain_is_not_one_of_shapes() -> None:
    assert fallback([node("com.microsoft.Gather", CPU)])


def test_a_session_tells_where_its_nodes_are(graph: Path) -> None:
    session = OnnxSession(graph, SessionOptions(tuning=RECORDED))
    assert {str(each) for each in session.nodes} == {
        "/shape (Shape)",
        "/zeros (ConstantOfShape)",
        "/layer0/mlp/MatMul (MatMul)",
        "/add (Add)",
        "/layer0/gelu (com.microsoft.Gelu)",
    }
    assert {each.provider for each in session.nodes} == {CPU}


def test_a_graph_that_would_fall_back_is_refused_or_noted_in_the_log(
    graph: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All of it is on the CPU here, so that two of five nodes would be."""
    session = OnnxSession(graph, SessionOptions(tuning=RECORDED))
    fallen = (
        "model.onnx: 2 of 5 nodes would run on the CPU: /layer0/mlp/MatMul (MatMul), "
        "/layer0/gelu (com.microsoft.Gelu)"
    )
    with pytest.raises(LoadError) as refused:
        session._check_assignment(graph.name, SessionOptions(device="cuda"))
    assert str(refused.value) == (
        f"{fallen}; export the model with `attendant export --target cuda`, or accept this with "
        "the parameter allow_cpu_nodes in config.pbtxt"
    )
    with caplog.at_level(logging.WARNING):
        session._check_assignment(graph.name, SessionOptions(device="cuda", allows_cpu_nodes=True))
    assert caplog.messages == [f"{fallen}, and their tensors are copied in every run"]
