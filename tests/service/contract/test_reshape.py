"""Clients see `dims`, the graph takes and gives `reshape.shape`."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from grpc import StatusCode
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.model_config_pb2 import ModelConfig

from service.contract.config_completion import complete_from_graph, signature_of
from service.contract.model_config import parse_config
from service.contract.tensors import Signature, can_reshape, reshaped
from service.errors import LoadError
from tests.fakes.serving import refusal, serving
from tests.fakes.sessions import FakeSession, FakeSessions, spec, write_model


@pytest.mark.parametrize(
    ("dims", "shape", "expected"),
    [
        ([1], [], True),  # Triton's way to a graph whose rows are scalars
        ([1, 1], [], True),
        ([2], [], False),
        ([4], [2, 2], True),
        ([4], [1, 4, 1], True),
        ([4], [2, 3], False),
        ([2, 4, -1, 6], [8, -1, 1, 6], True),
        ([2, 4, -1, 6], [6, -1, 8], False),
        ([-1], [4], False),
        ([-1, 4], [4, -1], False),  # the free axis would change places with a fixed one
        ([-1, -1], [-1, 1, -1], True),
        ([-1, -1], [-1], False),
        ([2**40, 2**40], [2**80], True),
    ],
)
def test_dims_and_shape_agree_around_every_free_axis(
    dims: list[int], shape: list[int], expected: bool
) -> None:
    assert can_reshape(dims, shape) is expected
    assert can_reshape(shape, dims) is expected


@pytest.mark.parametrize(
    ("shape", "stated", "wanted", "has_rows", "expected"),
    [
        ((3, 4), [4], [2, 2], True, (3, 2, 2)),
        ((3, 1), [1], [], True, (3,)),
        ((3,), [], [1], True, (3, 1)),
        ((1,), [1], [], False, ()),
        ((), [], [1], False, (1,)),
        ((2, 5, 6), [-1, 6], [-1, 2, 3], True, (2, 5, 2, 3)),
        ((0, 4), [4], [2, 2], True, (0, 2, 2)),
        ((2, 0, 7), [-1, -1], [-1, 1, -1], True, (2, 0, 1, 7)),
    ],
)
def test_an_array_takes_the_shape_wanted_and_keeps_its_elements(
    shape: tuple[int, ...],
    stated: list[int],
    wanted: list[int],
    has_rows: bool,
    expected: tuple[int, ...],
) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    found = reshaped(array, stated, wanted, has_rows)
    assert found.shape == expected
    assert found.ravel().tolist() == array.ravel().tolist()


@pytest.mark.parametrize("shape", [(3, 5), (3,), (3, 2, 2)])
def test_an_array_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"has shape .*, expected \[4\]"):
        reshaped(np.zeros(shape), [4], [2, 2], has_batch_axis=True)


RESHAPING = """
max_batch_size: 8
input { name: 'x' data_type: TYPE_FP32 dims: 4 reshape { shape: [2, 2] } }
output { name: 'y' data_type: TYPE_FP32 dims: [1, 4] reshape { shape: [2, 2] } }
"""
SQUARES = Signature((spec("x", "FP32", -1, 2, 2),), (spec("y", "FP32", -1, 2, 2),))
SCALARS = Signature((spec("x", "FP32", -1),), (spec("y", "FP32", -1),))
SCALAR = Signature((spec("x", "FP32"),), (spec("y", "FP32"),))


def completed(text: str, graph: Signature) -> ModelConfig:
    return complete_from_graph(parse_config(text, "m"), graph, 8)


def test_the_graph_is_checked_against_the_shape_and_not_the_dims() -> None:
    signature = signature_of(completed(RESHAPING, SQUARES))
    assert (signature.inputs[0].dims, signature.inputs[0].reshape) == ((4,), (2, 2))
    with pytest.raises(LoadError, match=r"'x' has reshape \[2, 2\], but the model has \[4\]"):
        completed(RESHAPING, Signature((spec("x", "FP32", -1, 4),), SQUARES.outputs))


def test_sizes_that_differ_are_refused() -> None:
    text = "input { name: 'x' data_type: TYPE_FP32 dims: [4] reshape { shape: [3] } }"
    with pytest.raises(LoadError) as caught:
        parse_config(text, "m")
    assert str(caught.value) == (
        "config.pbtxt: input 'x' has different size for dims and reshape: [4] and [3]"
    )


@pytest.mark.parametrize("graph", [SCALARS, SCALAR])
def test_scalars_are_shown_as_one_element_as_in_triton(graph: Signature) -> None:
    config = completed("", graph)
    for tensor in (*config.input, *config.output):
        assert list(tensor.dims) == [1]
        assert tensor.HasField("reshape")
        assert not tensor.reshape.shape


def asking(name: str, *shape: int) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=name)
    request.inputs.add(name="x", datatype="FP32", shape=shape)
    request.raw_input_contents.append(np.arange(np.prod(shape), dtype="<f4").tobytes())
    return request


@pytest.mark.asyncio
async def test_clients_see_dims_and_the_graph_its_own_shapes(tmp_path: Path) -> None:
    """Rows of 4 go in as squares and come out as 1 by 4; scalars are one element."""
    graphs = {"squares": SQUARES, "scalars": SCALARS, "scalar": SCALAR}
    write_model(tmp_path, "squares", config=RESHAPING)
    for name in ("scalars", "scalar"):
        write_model(tmp_path, name)
    sessions = FakeSessions(**{name: partial(echo, graph) for name, graph in graphs.items()})
    async with serving(tmp_path, sessions) as served:
        for name, sent, at_graph, answered in (
            ("squares", (3, 4), (3, 2, 2), [3, 1, 4]),
            ("scalars", (3, 1), (3,), [3, 1]),
            ("scalar", (1,), (), [1]),
        ):
            metadata = await served.inference.ModelMetadata(pb.ModelMetadataRequest(name=name))
            assert list(metadata.inputs[0].shape) == [-1 if len(sent) > 1 else 1, *sent[1:]]
            answer = await served.inference.ModelInfer(asking(name, *sent))
            assert sessions[name].batches[0]["x"].shape == at_graph
            assert list(answer.outputs[0].shape) == answered
            assert answer.raw_output_contents[0] == asking(name, *sent).raw_input_contents[0]


@pytest.mark.asyncio
async def test_a_graph_that_gives_another_shape_is_the_model_s_failure(tmp_path: Path) -> None:
    write_model(tmp_path, "squares", config=RESHAPING)
    wrong = FakeSession(SQUARES, lambda inputs: {"y": inputs["x"].reshape(-1, 4)})
    async with serving(tmp_path, FakeSessions(squares=lambda: wrong)) as served:
        code, text = await refusal(served.inference.ModelInfer(asking("squares", 3, 4)))
        with served.app.repository.find("squares").statistics() as counted:
            assert (counted.success.count, counted.failures["BACKEND"]) == (0, 1)
    assert code is StatusCode.INTERNAL
    assert "output 'y' of the graph has shape [4], expected [2, 2]" in text


def test_a_file_states_a_scalar_as_one_element() -> None:
    text = "input { name: 'x' data_type: TYPE_FP32 dims: [1, 1] }"
    (spec_of_x,) = signature_of(completed(text, SCALAR)).inputs
    assert (spec_of_x.dims, spec_of_x.reshape) == ((1, 1), ())
    with pytest.raises(LoadError, match=r"'x' has dims \[2\], but the model has \[\]"):
        completed("input { name: 'x' data_type: TYPE_FP32 dims: 2 }", SCALAR)


def echo(graph: Signature) -> FakeSession:
    return FakeSession(graph, lambda inputs: {"y": inputs["x"]})
