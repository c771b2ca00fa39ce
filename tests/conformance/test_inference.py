"""Inference that succeeds, as clients of every kind ask for it."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import aio
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.messages import LIMIT_S, Stub, identity, simple, streamed

COUNTING = np.arange(16, dtype=np.int32).reshape(1, 16)
ONES = np.ones((1, 16), np.int32)
WORDS = np.array([[b"", "naïve".encode(), b"a\0b", b"x" * 1_000]], object)
VALUES: dict[str, np.ndarray] = {
    "BOOL": np.array([[True, False, True]]),
    "INT8": np.array([[-128, 0, 127]], np.int8),
    "INT16": np.array([[-(2**15), 0, 2**15 - 1]], np.int16),
    "INT32": np.array([[-(2**31), 0, 2**31 - 1]], np.int32),
    "INT64": np.array([[-(2**63), 0, 2**63 - 1]], np.int64),
    "UINT8": np.array([[0, 1, 255]], np.uint8),
    "UINT16": np.array([[0, 1, 2**16 - 1]], np.uint16),
    "UINT32": np.array([[0, 1, 2**32 - 1]], np.uint32),
    "UINT64": np.array([[0, 1, 2**64 - 1]], np.uint64),
    "FP16": np.array([[-1.5, 0, np.inf]], np.float16),
    "BF16": np.array([[-1.5, 0, np.inf]], ml_dtypes.bfloat16),
    "FP32": np.array([[-1.5, np.nan, np.inf]], np.float32),
    "FP64": np.array([[-1.5, np.nan, 1e300]], np.float64),
    "BYTES": WORDS,
}
FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def tensor(name: str, array: np.ndarray, datatype: str = "INT32") -> triton.InferInput:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def two() -> list[Any]:
    return [tensor("INPUT0", COUNTING), tensor("INPUT1", ONES)]


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype_comes_back_as_it_was_sent(
    client: triton.InferenceServerClient, datatype: str
) -> None:
    name, sent = f"identity_{datatype.lower()}", VALUES[datatype]
    result = client.infer(name, [tensor("INPUT0", sent, datatype)], client_timeout=LIMIT_S)
    (output,) = result.get_response().outputs
    assert (output.name, output.datatype, list(output.shape)) == (
        "OUTPUT0",
        datatype,
        list(sent.shape),
    )
    back = result.as_numpy("OUTPUT0")
    assert back.tolist() == sent.tolist() or back.tobytes() == sent.tobytes()


@pytest.mark.parametrize("datatype", FIELDS)
def test_typed_contents_are_answered_raw_and_with_the_same_bytes(stub: Stub, datatype: str) -> None:
    sent = VALUES[datatype]
    raw = triton.InferInput("INPUT0", list(sent.shape), datatype)
    raw.set_data_from_numpy(sent)
    request = identity(datatype, list(sent.shape), b"")
    del request.raw_input_contents[:]
    contents = getattr(request.inputs[0].contents, FIELDS[datatype])
    contents.extend(sent.ravel().tolist())
    answer = stub.ModelInfer(request, timeout=LIMIT_S)
    assert list(answer.raw_output_contents) == [raw._get_content()]
    assert not answer.outputs[0].HasField("contents")


@pytest.mark.parametrize("shape", [[1, 0], [8, 0]])
@pytest.mark.parametrize("datatype", ["FP32", "BF16", "BYTES"])
def test_tensors_without_elements_come_back(stub: Stub, datatype: str, shape: list[int]) -> None:
    answer = stub.ModelInfer(identity(datatype, shape, b""), timeout=LIMIT_S)
    assert list(answer.outputs[0].shape) == shape
    assert list(answer.raw_output_contents) == [b""]


def test_a_model_without_a_batch_axis_takes_the_full_shape(
    client: triton.InferenceServerClient,
) -> None:
    sent = np.array([1.5, 2.5], np.float32)
    result = client.infer("unbatched", [tensor("INPUT0", sent, "FP32")])
    assert result.as_numpy("OUTPUT0").tolist() == [1.5, 2.5]


def test_a_reshape_is_between_client_and_graph(client: triton.InferenceServerClient) -> None:
    image = np.zeros((3, 224, 224), np.float32)
    result = client.infer("densenet_onnx", [tensor("data_0", image, "FP32")])
    assert result.as_numpy("fc6_1").tolist() == [0.0] * 1_000


@pytest.mark.parametrize("wanted", [["OUTPUT1"], ["OUTPUT0"], ["OUTPUT1", "OUTPUT0"], []])
def test_only_the_outputs_asked_for_are_answered(stub: Stub, wanted: list[str]) -> None:
    request = simple()
    for name in wanted:
        request.outputs.add(name=name)
    answer = stub.ModelInfer(request, timeout=LIMIT_S)
    names = {output.name for output in answer.outputs}
    assert names == set(wanted or ["OUTPUT0", "OUTPUT1"])
    assert len(answer.raw_output_contents) == len(names)


@pytest.mark.parametrize("sent", ["", "seven", "ä" * 300])
def test_the_id_comes_back(stub: Stub, sent: str) -> None:
    request = simple()
    request.id = sent
    assert stub.ModelInfer(request, timeout=LIMIT_S).id == sent
    (answer,) = streamed(stub, request)
    assert answer.infer_response.id == sent


@pytest.mark.parametrize(("asked", "answered"), [("", "2"), ("1", "1"), ("2", "2")])
def test_the_version_asked_for_answers(
    client: triton.InferenceServerClient, asked: str, answered: str
) -> None:
    inputs = [tensor("INPUT0", np.array([[40]], np.int32))]
    result = client.infer("versions", inputs, model_version=asked)
    assert result.get_response().model_version == answered
    assert result.as_numpy("OUTPUT0").tolist() == [[40 + int(answered)]]


def test_a_version_is_a_number_at_the_beginning(stub: Stub) -> None:
    request = simple()
    request.model_version = "1abc"
    assert stub.ModelInfer(request, timeout=LIMIT_S).model_version == "1"


def test_a_version_that_the_policy_leaves_out_is_not_found(
    client: triton.InferenceServerClient,
) -> None:
    inputs = [tensor("INPUT0", np.array([[40]], np.int32))]
    with pytest.raises(triton.InferenceServerException, match="version 5 is not found"):
        client.infer("versions", inputs, model_version="5")


@pytest.mark.parametrize("algorithm", [None, "gzip", "deflate"])
def test_compressed_requests_are_understood(
    client: triton.InferenceServerClient, algorithm: str | None
) -> None:
    result = client.infer("simple", two(), compression_algorithm=algorithm)
    assert result.as_numpy("OUTPUT0").tolist() == (COUNTING + ONES).tolist()


def test_messages_of_many_megabytes_come_and_go(client: triton.InferenceServerClient) -> None:
    sent = np.arange(2**21, dtype=np.float32).reshape(8, -1)
    back = client.infer("identity_fp32", [tensor("INPUT0", sent, "FP32")]).as_numpy("OUTPUT0")
    assert np.array_equal(back, sent)


PARAMETERS: dict[str, dict[str, Any]] = {
    "own": {"parameters": {"whole": 1, "truth": True, "text": "a", "real": 1.5}},
    "priority": {"priority": 2},
    "timeout": {"timeout": 10_000_000},
    "timeout below 0, which is none": {"timeout": -1},
    "headers": {"headers": {"test": "1"}},
    "request id": {"request_id": "seven"},
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters_are_taken(client: triton.InferenceServerClient, case: str) -> None:
    result = client.infer("simple", two(), client_timeout=LIMIT_S, **PARAMETERS[case])
    assert result.as_numpy("OUTPUT1").tolist() == (COUNTING - ONES).tolist()


def test_unknown_parameters_of_tensors_are_ignored(stub: Stub) -> None:
    request = simple()
    request.inputs[0].parameters["mine"].int64_param = 1
    request.outputs.add(name="OUTPUT0").parameters["mine"].string_param = "a"
    assert len(stub.ModelInfer(request, timeout=LIMIT_S).raw_output_contents) == 1


def test_more_raw_contents_than_inputs_are_ignored(stub: Stub) -> None:
    request = simple()
    request.raw_input_contents.append(b"more")
    assert len(stub.ModelInfer(request, timeout=LIMIT_S).raw_output_contents) == 2


def by_sync(client: triton.InferenceServerClient) -> list[list[int]]:
    return [client.infer("simple", two()).as_numpy("OUTPUT0")[0].tolist() for _ in range(3)]


def by_callbacks(client: triton.InferenceServerClient) -> list[list[int]]:
    done: queue.Queue[Any] = queue.Queue()
    for _ in range(3):
        client.async_infer("simple", two(), lambda result, error: done.put(error or result))
    return [done.get(timeout=LIMIT_S).as_numpy("OUTPUT0")[0].tolist() for _ in range(3)]


def by_stream(client: triton.InferenceServerClient) -> list[list[int]]:
    done: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: done.put(error or result))
    for index in range(3):
        client.async_stream_infer("simple", two(), request_id=str(index))
    results = [done.get(timeout=LIMIT_S) for _ in range(3)]
    client.stop_stream()
    assert [result.get_response().id for result in results] == ["0", "1", "2"]
    return [result.as_numpy("OUTPUT0")[0].tolist() for result in results]


@pytest.mark.parametrize("ask", [by_sync, by_callbacks, by_stream])
def test_clients_of_every_kind_get_the_same(
    client: triton.InferenceServerClient,
    ask: Callable[[triton.InferenceServerClient], list[list[int]]],
) -> None:
    assert ask(client) == [(COUNTING + ONES)[0].tolist()] * 3


async def test_aio_clients_get_the_same(aio_client: aio.InferenceServerClient) -> None:
    results = await asyncio.gather(*(aio_client.infer("simple", two()) for _ in range(3)))
    assert all(np.array_equal(result.as_numpy("OUTPUT0"), COUNTING + ONES) for result in results)

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for index in range(3):
            yield {"model_name": "simple", "inputs": two(), "request_id": str(index)}

    ids = []
    async for result, error in aio_client.stream_infer(requests()):
        assert error is None
        assert np.array_equal(result.as_numpy("OUTPUT1"), COUNTING - ONES)
        ids.append(result.get_response().id)
    assert ids == ["0", "1", "2"]


def test_a_stream_carries_many_models_and_answers_in_order(stub: Stub) -> None:
    slow = pb.ModelInferRequest(model_name="custom_identity_int32", id="slow")
    slow.inputs.add(name="INPUT0", datatype="INT32", shape=[1, 1])
    slow.raw_input_contents.append(bytes(4))
    quick = simple()
    quick.id = "quick"
    answers = streamed(stub, slow, quick)
    assert [answer.infer_response.id for answer in answers] == ["slow", "quick"]
    assert all(a.infer_response.parameters["triton_final_response"].bool_param for a in answers)


def test_a_stream_that_asks_nothing_ends_well(stub: Stub) -> None:
    assert streamed(stub) == []


def test_an_empty_final_response_is_not_sent_for_models_of_one_answer(stub: Stub) -> None:
    request = simple()
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    (answer,) = streamed(stub, request)
    assert answer.infer_response.parameters["triton_final_response"].bool_param
    assert len(answer.infer_response.raw_output_contents) == 2


def test_concurrent_clients_get_their_own_answers(stub: Stub) -> None:
    """They share batches: every row goes back to its sender."""
    wrong: list[int] = []

    def ask(number: int) -> None:
        request = identity("INT32", [2, 3], np.full((2, 3), number, "<i4").tobytes())
        answer = stub.ModelInfer(request, timeout=LIMIT_S)
        if answer.raw_output_contents[0] != request.raw_input_contents[0]:
            wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not wrong


def test_answers_have_no_metadata_of_ours(stub: Stub) -> None:
    """What a Triton does not send either; compression and such belong to the transport."""
    call = stub.ModelInfer.future(simple(), timeout=LIMIT_S)
    assert call.code() is grpc.StatusCode.OK
    assert not call.trailing_metadata()
