"""Graphs that must not harm a server: what ONNX Runtime refuses, and how.

The server adds no parser of its own before ONNX Runtime's; these tests hold the version that is
installed to what is promised in its name. What it does not promise is said in
docs/explanation/security.md.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from service.contract.files import ModelSource, take_snapshot
from service.errors import LoadError, ModelFailed
from service.runtime.session import OnnxSession, SessionOptions

SECRET = np.arange(4, dtype=np.float32)


def tensor(name: str, dims: Sequence[int] = (4,), location: str = "", **place: int) -> TensorProto:
    """Float weights: in another file where a location is given, else 4 bytes of them."""
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    if not location:
        made.raw_data = b"1234"
        return made
    made.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **place}.items():
        made.external_data.add(key=key, value=str(value))
    return made


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    initializers: Sequence[TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
    opset: int = 17,
) -> Path:
    """A graph from `x` to `y`, float32 [n, 4]."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "xy")
    graph = helper.make_graph(nodes, "graph", [x], [y], initializers)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


ADD = helper.make_node("Add", ["x", "w"], ["y"])
NEGATE = helper.make_node("Neg", ["x"], ["y"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a graph goes, in a repository whose other folders hold what it must not read."""
    for folder in (tmp_path, tmp_path / "m", tmp_path / "m" / "1"):
        folder.mkdir(exist_ok=True)
        (folder / "weights").write_bytes(SECRET.tobytes())
    (tmp_path / "m" / "1" / "link").symlink_to(tmp_path / "weights")
    return tmp_path / "m" / "1" / "model.onnx"


def refusal(path: Path) -> str:
    """What is said of a graph that is not opened."""
    with pytest.raises(LoadError) as caught:
        OnnxSession(path, SessionOptions())
    assert str(caught.value).startswith("model.onnx: ")
    return str(caught.value)


def test_weights_beside_the_graph_are_read(path: Path) -> None:
    """So that the refusals below are about the place and not about external data."""
    session = OnnxSession(save(path, [ADD], [tensor("w", location="weights")]), SessionOptions())
    (y,) = session.run({"x": np.zeros((1, 4), np.float32)}, ["y"])
    assert y.tolist() == [SECRET.tolist()]


OUTSIDE = ("../weights", "../../weights", "sub/../../weights", "{root}/weights", "link")


@pytest.mark.parametrize("location", OUTSIDE)
def test_weights_outside_of_the_folder_are_refused(
    tmp_path: Path, path: Path, location: str
) -> None:
    where = location.format(root=tmp_path)
    message = refusal(save(path, [ADD], [tensor("w", location=where)]))
    assert "escapes model directory" in message or "Absolute path not allowed" in message


def test_no_part_of_a_graph_may_hold_them_either(path: Path) -> None:
    """Constants, branches and functions carry tensors too."""
    outside = tensor("w", location="../weights")
    constant = helper.make_node("Constant", [], ["w"], value=outside)
    assert "escapes model directory" in refusal(save(path, [constant, ADD]))

    result = [helper.make_tensor_value_info("o", TensorProto.FLOAT, [4])]
    branch = helper.make_graph([helper.make_node("Identity", ["w"], ["o"])], "b", [], result)
    branch.initializer.append(outside)
    nodes = [
        helper.make_node("If", ["c"], ["b"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["x", "b"], ["y"]),
    ]
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    assert "should be file inside" in refusal(save(path, nodes, [condition]))

    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "F", ["x"], ["y"], [constant, ADD], opsets)
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    assert "escapes model directory" in refusal(save(path, [call], functions=[function]))


def test_a_graph_or_its_weights_may_be_no_link_out_of_the_repository(path: Path) -> None:
    """The server's own check, before ONNX Runtime sees a file."""
    repository = path.parents[1].parent / "repository"
    repository.mkdir()
    path.parents[1].rename(repository / "m")
    with pytest.raises(LoadError, match="1/link is a link out of the model repository"):
        take_snapshot(ModelSource.of(repository, "m"))


@pytest.mark.parametrize(
    ("weights", "part"),
    [
        (tensor("w", location="missing"), "External data path does not exist"),
        (tensor("w", (2**36, 4), location="weights"), "out of bounds"),
        (tensor("w", location="weights", offset=8), "out of bounds"),
        (tensor("w", location="weights", offset=-8), "model.onnx: "),
        (tensor("w", location="weights", length=2**62), "model.onnx: "),
        (tensor("w", location="*/_ORT_MEM_ADDR_/*", offset=4096, length=16), "model.onnx: "),
        (tensor("w", (2**40, 4)), "exceeds the 2147483648 byte limit"),
        (tensor("w", (2**62, 4)), "overflow"),
        (tensor("w", (-4,)), "model.onnx: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_that_lie_about_their_size_or_place_are_refused(
    path: Path, weights: TensorProto, part: str
) -> None:
    assert part in refusal(save(path, [ADD], [weights]))


def test_operators_that_the_server_does_not_have_are_refused_by_name(path: Path) -> None:
    message = refusal(save(path, [helper.make_node("Evil", ["x"], ["y"], domain="own")]))
    assert "own:Evil(-1) is not a registered function/op" in message


def test_a_function_that_calls_itself_is_refused(path: Path) -> None:
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    opsets = [helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "F", ["x"], ["y"], [call], opsets)
    refusal(save(path, [call], functions=[function]))


def test_a_graph_with_a_cycle_is_refused(path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    assert "not acyclic" in refusal(save(path, nodes))


def test_an_operator_set_of_the_future_is_refused(path: Path) -> None:
    assert "999" in refusal(save(path, [NEGATE], opset=999))


def test_every_beginning_of_a_graph_is_refused(path: Path) -> None:
    whole = save(path, [NEGATE]).read_bytes()
    OnnxSession(path, SessionOptions())
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        refusal(path)


def test_messages_within_messages_are_refused_before_the_stack_ends(path: Path) -> None:
    """3,000 branches, each within the one before."""

    def field(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    graph = b""
    for _ in range(3_000):  # GraphProto.node, NodeProto.attribute, AttributeProto.g
        graph = field(1, field(4, b"If") + field(5, field(1, b"then_branch") + field(6, graph)))
    path.write_bytes(b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11"))
    assert "Protobuf parsing failed" in refusal(path)


def test_a_graph_that_asks_for_more_memory_than_there_is_fails_its_requests(path: Path) -> None:
    """16 TiB: the request fails, and nothing else does."""
    shape = helper.make_tensor("v", TensorProto.INT64, [2], [2**40, 4])
    nodes = [
        helper.make_node("Constant", [], ["s"], value=shape),
        helper.make_node("ConstantOfShape", ["s"], ["w"]),
        ADD,
    ]
    session = OnnxSession(save(path, nodes), SessionOptions())
    with pytest.raises(ModelFailed, match="ConstantOfShape"):
        session.run({"x": np.zeros((1, 4), np.float32)}, ["y"])
