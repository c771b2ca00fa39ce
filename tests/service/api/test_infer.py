"""What comes back: every output raw, as classes or in shared memory, and none too large."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from service.api.infer import LONG_BYTES, STREAM_BYTES, build_response
from service.api.long_message import LongInferResponse
from service.api.regions import Transfer
from service.contract.interface import ModelInterface
from service.contract.tensors import DATATYPES, Signature, TensorSpec, to_raw
from service.errors import InvalidArgument
from service.observe.observers import Observers
from service.serving.model import Host, ServedModel
from service.settings import Settings
from tests.fakes.serving import NO_SHARING, simple_request
from tests.fakes.sessions import spec

OUTPUTS = {"OUTPUT0": np.arange(16, dtype="<i4").reshape(1, 16), "OUTPUT1": np.ones((1, 16), "<i4")}
SPECS = spec("OUTPUT0", "INT32", 16), spec("OUTPUT1", "INT32", 16)


class IdleEngine:
    """Computes nothing."""

    num_waiting = num_running = 0
    running_since_s = None
    failure = None

    def stop(self) -> None: ...

    def close(self, timeout_s: float) -> None: ...


def served(*outputs: TensorSpec, version: int = 1, max_batch_size: int = 8) -> ServedModel:
    signature = Signature((), outputs or SPECS)
    interface = ModelInterface("simple", version, signature, max_batch_size)
    return ServedModel(
        Host(Settings(), Observers(), ThreadPoolExecutor(1)), interface, IdleEngine()
    )


def request_for(*names: str, **parameters: int) -> pb.ModelInferRequest:
    """Outputs by name, each with these parameters."""
    request = simple_request()
    for name in names:
        output = request.outputs.add(name=name)
        for key, value in parameters.items():
            output.parameters[key].int64_param = value
    return request


def test_a_response_echoes_id_and_names_the_version_that_answered() -> None:
    request = simple_request()
    request.id, request.model_version = "seven", ""
    response = build_response(request, served(version=3), OUTPUTS, NO_SHARING)
    assert (response.id, response.model_name, response.model_version) == ("seven", "simple", "3")
    assert not response.parameters


def test_without_a_choice_every_output_comes_raw_in_the_model_s_order() -> None:
    response = build_response(simple_request(), served(), OUTPUTS, NO_SHARING)
    assert [output.name for output in response.outputs] == ["OUTPUT0", "OUTPUT1"]
    assert [output.datatype for output in response.outputs] == ["INT32", "INT32"]
    assert [list(output.shape) for output in response.outputs] == [[1, 16], [1, 16]]
    assert list(response.raw_output_contents) == [to_raw(array) for array in OUTPUTS.values()]
    assert not any(output.HasField("contents") for output in response.outputs)


def test_a_choice_of_outputs_is_answered_in_the_model_s_order() -> None:
    both, one = request_for("OUTPUT1", "OUTPUT0"), request_for("OUTPUT1")
    response = build_response(both, served(), OUTPUTS, NO_SHARING)
    assert [output.name for output in response.outputs] == ["OUTPUT0", "OUTPUT1"]
    response = build_response(one, served(), OUTPUTS, NO_SHARING)
    assert [output.name for output in response.outputs] == ["OUTPUT1"]
    assert list(response.raw_output_contents) == [to_raw(OUTPUTS["OUTPUT1"])]


def test_an_output_of_no_elements_has_an_empty_raw_entry() -> None:
    empty = {name: np.empty((0, 16), "<i4") for name in OUTPUTS}
    response = build_response(simple_request(), served(), empty, NO_SHARING)
    assert [list(output.shape) for output in response.outputs] == [[0, 16], [0, 16]]
    assert list(response.raw_output_contents) == [b"", b""]


def test_typed_requests_are_answered_raw_too() -> None:
    request = simple_request()
    del request.raw_input_contents[:]
    for tensor in request.inputs:
        tensor.contents.int_contents.extend([1] * 16)
    response = build_response(request, served(), OUTPUTS, NO_SHARING)
    assert len(response.raw_output_contents) == 2


def test_an_output_asked_for_as_classes_comes_as_strings_with_its_labels() -> None:
    """The other one comes as it is; labels may be fewer than classes."""
    request = request_for("OUTPUT0", classification=2)
    request.outputs.add(name="OUTPUT1")
    model = served()
    model.labels = {"OUTPUT0": [f"l{index}" for index in range(15)]}
    response = build_response(request, model, OUTPUTS, NO_SHARING)
    assert [(o.datatype, list(o.shape)) for o in response.outputs] == [
        ("BYTES", [1, 2]),
        ("INT32", [1, 16]),
    ]
    assert response.raw_output_contents[0] == b"\5\0\0\0" + b"15:15" + b"\x09\0\0\0" + b"14:14:l14"


def test_without_a_batch_axis_all_elements_are_classes() -> None:
    request = request_for("OUTPUT0", classification=1)
    response = build_response(request, served(max_batch_size=0), OUTPUTS, NO_SHARING)
    assert list(response.outputs[0].shape) == [1]


def test_a_response_that_grpc_would_not_send_is_refused_with_its_size_and_the_limit() -> None:
    fitting = build_response(simple_request(), served(), OUTPUTS, NO_SHARING)
    num_bytes = fitting.ByteSize() + STREAM_BYTES
    limited = Transfer(NO_SHARING.regions, max_message_bytes=num_bytes)
    assert build_response(simple_request(), served(), OUTPUTS, limited) == fitting
    limited = Transfer(NO_SHARING.regions, max_message_bytes=num_bytes - 1)
    with pytest.raises(InvalidArgument) as caught:
        build_response(simple_request(), served(), OUTPUTS, limited)
    assert str(caught.value) == (
        f"Response has byte size {num_bytes} which exceeds gRPC's byte size limit {num_bytes - 1}."
    )


def test_a_stream_adds_no_more_than_is_reckoned_with() -> None:
    response = build_response(simple_request(), served(), OUTPUTS, NO_SHARING)
    num_bytes = response.ByteSize()
    response.parameters["triton_final_response"].bool_param = True
    streamed = pb.ModelStreamInferResponse(infer_response=response)
    assert streamed.ByteSize() - num_bytes <= STREAM_BYTES


@pytest.mark.parametrize("datatype", ["INT32", "FP16", "BOOL", "BYTES"])
def test_a_long_response_is_written_as_protobuf_writes_it(datatype: str) -> None:
    """Whole or empty, in one piece of memory or not, in a stream or not."""
    kind = DATATYPES[datatype].dtype
    wide = np.ones((8, LONG_BYTES // 4), "<i4").astype(kind)
    outputs = {"LONG": wide, "TURNED": wide.T[::2], "NONE": wide[:, :0], "SHORT": wide[:, :2]}
    if datatype == "BYTES":
        outputs = {name: array.astype("U1").astype(object) for name, array in outputs.items()}
    model = served(*(spec(name, datatype, -1) for name in outputs))
    roomy = Transfer(NO_SHARING.regions, max_message_bytes=2**23)
    response = build_response(simple_request(), model, outputs, roomy)
    assert isinstance(response, LongInferResponse)
    response.parameters["triton_final_response"].bool_param = True
    expected = pb.ModelInferResponse()
    expected.CopyFrom(response.head)
    expected.raw_output_contents.extend(to_raw(array) for array in outputs.values())
    assert pb.ModelInferResponse.FromString(response.SerializeToString()) == expected
    assert response.ByteSize() == expected.ByteSize()
    streamed, whole = response.streamed(), pb.ModelStreamInferResponse(infer_response=expected)
    assert pb.ModelStreamInferResponse.FromString(streamed.SerializeToString()) == whole
    assert streamed.ByteSize() == whole.ByteSize()


def test_a_long_response_is_refused_by_the_same_limit() -> None:
    outputs = {"OUTPUT0": np.ones((1, LONG_BYTES), "<i4"), "OUTPUT1": np.ones((1, 16), "<i4")}
    roomy = Transfer(NO_SHARING.regions, max_message_bytes=2**23)
    fitting = build_response(simple_request(), served(), outputs, roomy)
    num_bytes = fitting.ByteSize() + STREAM_BYTES
    limited = Transfer(NO_SHARING.regions, num_bytes)
    assert build_response(simple_request(), served(), outputs, limited).ByteSize() < num_bytes
    limited = Transfer(NO_SHARING.regions, num_bytes - 1)
    with pytest.raises(InvalidArgument, match=f"byte size {num_bytes} which exceeds"):
        build_response(simple_request(), served(), outputs, limited)
