"""Inputs of a plain graph that has values for them: an ONNX input with an initializer."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import pytest_asyncio
from onnx import TensorProto, helper
from tritonclient.grpc import InferenceServerException, InferInput, aio
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.app import App
from service.contract.config_completion import complete_from_graph
from service.contract.model_config import parse_config
from service.contract.tensors import Signature
from service.errors import LoadError
from service.runtime.session import OnnxSession, SessionOptions
from service.settings import Settings
from tests.fakes.serving import within_patience
from tests.fakes.sessions import PATIENCE_S, spec

X = "{ name: 'x' data_type: TYPE_FP32 dims: [-1, 2] }"
SCALE = "{ name: 'scale' data_type: TYPE_FP32 dims: 2 optional: true }"
ROWS = np.array([[1, 2], [3, 4]], np.float32)


def write_scaling(repository: Path, name: str, config: str = "") -> Path:
    """`y` = `x` * `scale` + `shift`, of which the graph has scale [10, 100] and shift [0.5]."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["y"]),
    ]
    dims: dict[str, list[str | int]] = {"x": ["rows", 2], "scale": [2], "shift": [1]}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in dims.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])]
    values = [
        helper.make_tensor("scale", TensorProto.FLOAT, [2], [10, 100]),
        helper.make_tensor("shift", TensorProto.FLOAT, [1], [0.5]),
    ]
    graph = helper.make_graph(nodes, "scaling", inputs, outputs, values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    onnx.save(model, str(folder / "model.onnx"))
    if config:
        (repository / name / "config.pbtxt").write_text(config)
    return folder / "model.onnx"


def signature_of(folder: Path) -> Signature:
    return OnnxSession(write_scaling(folder, "m"), SessionOptions()).signature


def completed(text: str, graph: Signature) -> ModelConfig:
    return complete_from_graph(parse_config(text, "m"), graph, 8)


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[aio.InferenceServerClient]:
    write_scaling(tmp_path, "named", f"input [{X}, {SCALE}]")
    write_scaling(tmp_path, "silent")
    app = App(Settings(model_repository=tmp_path, grpc_port=0, http_port=-1, metrics_port=0))
    await within_patience(app.start())
    async with aio.InferenceServerClient(f"127.0.0.1:{app.grpc_port}") as connected:
        yield connected
    await within_patience(app.stop())


async def infer(client: aio.InferenceServerClient, model: str, **arrays: np.ndarray) -> np.ndarray:
    inputs = []
    for name, array in arrays.items():
        inputs.append(InferInput(name, list(array.shape), "FP32"))
        inputs[-1].set_data_from_numpy(array)
    result: np.ndarray = (await client.infer(model, inputs, client_timeout=PATIENCE_S)).as_numpy(
        "y"
    )
    return result


async def test_an_optional_input_may_be_left_out_and_given(
    client: aio.InferenceServerClient,
) -> None:
    """Left out, the graph's own value counts: 10 and 100."""
    own = await infer(client, "named", x=ROWS)
    assert own.tolist() == [[10.5, 200.5], [30.5, 400.5]]
    given = await infer(client, "named", x=ROWS, scale=np.array([1, -1], np.float32))
    assert given.tolist() == [[1.5, -1.5], [3.5, -3.5]]
    assert (await infer(client, "named", x=ROWS)).tolist() == own.tolist()
    config = (await client.get_model_config("named")).config
    assert [(each.name, each.optional) for each in config.input] == [("x", False), ("scale", True)]


async def test_what_the_file_does_not_name_is_no_input(client: aio.InferenceServerClient) -> None:
    """Some exporters list every weight so; a graph that is not configured batches as before."""
    assert (await infer(client, "silent", x=ROWS)).tolist() == [[10.5, 200.5], [30.5, 400.5]]
    config = (await client.get_model_config("silent")).config
    assert [each.name for each in config.input] == ["x"]
    assert config.max_batch_size == 64
    scale = np.array([[1, -1]] * 2, np.float32)
    with pytest.raises(InferenceServerException) as refused:
        await infer(client, "silent", x=ROWS, scale=scale)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_values_of_the_graph_are_told_apart_from_what_it_needs(tmp_path: Path) -> None:
    signature = signature_of(tmp_path)
    assert signature.inputs == (spec("x", "FP32", -1, 2),)
    assert [(each.name, each.dims) for each in signature.overridable] == [
        ("scale", (2,)),
        ("shift", (1,)),
    ]
    assert all(each.is_optional for each in signature.overridable)


def test_an_optional_input_may_be_demanded(tmp_path: Path) -> None:
    """Without `optional` its clients must give it."""
    config = completed(
        f"input [{X}, {SCALE.replace('optional: true', '')}]", signature_of(tmp_path)
    )
    assert [each.optional for each in config.input] == [False, False]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"max_batch_size: 4 input [{X.replace('[-1, 2]', '2')}, {SCALE}]",
            "optional input 'scale' is not supported for models that support batching",
        ),
        (f"input [{SCALE}]", r"inputs are \['scale'\], but the model takes \['scale', 'x'\]"),
        (f"input [{X}, {SCALE.replace('dims: 2', 'dims: 3')}]", r"'scale' has dims \[3\]"),
        (f"input [{X.replace('}', 'optional: true }')}]", "'x' is optional, but the model needs"),
    ],
)
def test_what_cannot_be_optional_is_refused_at_load(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        completed(text, signature_of(tmp_path))
