"""Every refusal of ModelInfer that the protocol knows: status and text, unary and in a stream."""

import struct

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.messages import LIMIT_S, Stub, call_raw, identity, refusal, simple, streamed
from tests.fakes.refusals import INVALID, NAMES, UNKNOWN_ID, Change, set_output


def set_names(model: str, version: str) -> Change:
    def change(request: pb.ModelInferRequest) -> None:
        request.model_name, request.model_version = model, version

    return change


# Of `simple`: what is changed, the status, the text.
CASES: dict[str, tuple[Change, str, str]] = {
    **{
        f"model {model!r} version {version!r}": (set_names(model, version), code, text)
        for model, version, code, text in NAMES
    },
    **{case: (change, "INVALID_ARGUMENT", text) for case, (change, text) in INVALID.items()},
    "place without a region": (
        set_output("shared_memory_byte_size", int64_param=64),
        "INVALID_ARGUMENT",
        "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter "
        "for tensor 'OUTPUT0'",
    ),
    "region without a size": (
        set_output("shared_memory_region", string_param="nothing"),
        "INVALID_ARGUMENT",
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter "
        "for tensor 'OUTPUT0'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_unary_refusal_has_status_and_text_of_triton(stub: Stub, case: str) -> None:
    change, code, text = CASES[case]
    request = simple()
    change(request)
    assert refusal(stub, request) == (code, text)


@pytest.mark.parametrize("case", CASES)
def test_refusal_in_a_stream_is_an_answer_and_the_next_request_is_served(
    stub: Stub, case: str
) -> None:
    change, _, text = CASES[case]
    bad, good = simple(), simple()
    bad.id, good.id = "bad", "good"
    change(bad)
    refused, answered = streamed(stub, bad, good)
    assert refused.error_message == text.replace("<id_unknown>", "bad")
    assert refused.infer_response.id == "bad"
    assert not refused.infer_response.outputs
    assert not answered.error_message
    assert answered.infer_response.id == "good"
    assert len(answered.infer_response.raw_output_contents) == 2


# Of `identity_bytes` with two elements: the bytes sent, and what is said of them.
STRINGS = {
    "too few": (b"\1\0\0\0a", "expected 2 string elements for inference input 'INPUT0'"),
    "too many": (b"\1\0\0\0a" * 3, "unexpected number of string elements 3 for inference input"),
    "cut length": (
        b"\1\0\0\0a\1\0",
        "incomplete string length indicator for inference input 'INPUT0' for model "
        "'identity_bytes', expecting 4 bytes but only 2 bytes available",
    ),
    "length that lies": (
        struct.pack("<I", 100) + b"abc",
        "expecting string of length 100 but only 3 bytes available",
    ),
    "length of 4 GiB": (b"\xff\xff\xff\xffa", "expecting string of length 4294967295 but only 1"),
    "no UTF-8": (b"\1\0\0\0\xff\1\0\0\0a", "UTF-8"),
}


@pytest.mark.parametrize("case", STRINGS)
def test_malformed_strings_are_refused(stub: Stub, case: str) -> None:
    raw, text = STRINGS[case]
    code, said = refusal(stub, identity("BYTES", [1, 2], raw))
    assert code == "INVALID_ARGUMENT"
    assert text in said


@pytest.mark.parametrize("shape", [[1, 2**62, 2**62], [1, 2**61 + 1], [8, 2**62]])
def test_a_shape_beyond_any_memory_is_refused(stub: Stub, shape: list[int]) -> None:
    code, text = refusal(stub, identity("FP32", shape, b"1234"))
    assert code == "INVALID_ARGUMENT"
    assert "INPUT0" in text


@pytest.mark.parametrize("datatype", ["BYTES", "FP16", "BOOL"])
def test_classes_of_what_has_no_order_are_refused(stub: Stub, datatype: str) -> None:
    raw = {"BYTES": b"\1\0\0\0a", "FP16": bytes(2), "BOOL": bytes(1)}[datatype]
    request = identity(datatype, [1, 1], raw)
    set_output("classification", int64_param=1)(request)
    text = f"class result not available for output due to unsupported type '{datatype}'"
    code, said = refusal(stub, request)
    assert (code, said.removeprefix(UNKNOWN_ID)) == ("INVALID_ARGUMENT", text)


def test_classes_of_a_huge_output_are_refused(stub: Stub) -> None:
    request = identity("INT8", [1, 1_000_001], bytes(1_000_001))
    set_output("classification", int64_param=1)(request)
    code, text = refusal(stub, request)
    assert code == "INVALID_ARGUMENT"
    assert "classification output tensor too large" in text


def asking(index: int) -> pb.ModelInferRequest:
    """For a square that the model has if `index` is below 10, and else raises."""
    request = pb.ModelInferRequest(model_name="lookup")
    request.inputs.add(name="index", datatype="INT64", shape=[1, 1])
    request.raw_input_contents.append(np.array([index], "<i8").tobytes())
    return request


def test_a_stream_that_asks_for_statuses_ends_with_the_models_error(stub: Stub) -> None:
    header = (("triton_grpc_error", "true"),)
    answers = stub.ModelStreamInfer(iter([asking(3), asking(99)]), metadata=header, timeout=LIMIT_S)
    assert not next(answers).error_message
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "out of data bounds" in (caught.value.details() or "")


def test_what_the_model_raises_is_internal_and_other_requests_are_served(stub: Stub) -> None:
    code, text = refusal(stub, asking(99))
    assert code == "INTERNAL"
    assert "out of data bounds" in text
    answer = stub.ModelInfer(asking(3), timeout=LIMIT_S)
    assert list(answer.raw_output_contents) == [np.float32(9).tobytes()]
    failed, answered = streamed(stub, asking(99), asking(3))
    assert "out of data bounds" in failed.error_message
    assert answered.infer_response.raw_output_contents == [np.float32(9).tobytes()]


def test_a_method_that_there_is_not_is_unimplemented(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call_raw(channel, "Nope", b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_bytes_that_are_no_message_are_refused(channel: grpc.Channel, stub: Stub) -> None:
    """Triton says INTERNAL; grpc.aio has UNKNOWN for what it cannot read."""
    with pytest.raises(grpc.RpcError) as caught:
        call_raw(channel, "ModelInfer", b"\xff\xff\xff")
    assert caught.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    assert len(stub.ModelInfer(simple(), timeout=LIMIT_S).outputs) == 2
