"""Every refusal of ModelInfer that the protocol knows: status and text, unary and in a stream."""

import struct

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.messages import (
    LIMIT_S,
    Change,
    Stub,
    call_raw,
    identity,
    refusal,
    simple,
    streamed,
    typed,
)

UNKNOWN_ID = "[request id: <id_unknown>] "  # before whatever is found out of the tensors
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to each input shape. If you want to specify the full shape including the batch dim "
    "in your input dims config, try setting max_batch_size to zero. See the model configuration "
    "docs for more info on max_batch_size."
)
RESERVED = (
    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys "
    "starting with 'triton_' are allowed: triton_enable_empty_final_response"
)


def set_shape(index: int, *shape: int) -> Change:
    def change(request: pb.ModelInferRequest) -> None:
        request.inputs[index].shape[:] = shape

    return change


def set_datatype(name: str) -> Change:
    return lambda request: setattr(request.inputs[0], "datatype", name)


def set_parameter(key: str, field: str, value: object) -> Change:
    return lambda request: setattr(request.parameters[key], field, value)


def set_output(key: str, field: str, value: object) -> Change:
    return lambda request: setattr(
        request.outputs.add(name="OUTPUT0").parameters[key], field, value
    )


def set_version(version: str) -> Change:
    return lambda request: setattr(request, "model_version", version)


def add_input(request: pb.ModelInferRequest) -> None:
    request.inputs.add(name="INPUT2", datatype="INT32", shape=[1, 16])
    request.raw_input_contents.append(bytes(64))


def drop_input(request: pb.ModelInferRequest) -> None:
    del request.inputs[1], request.raw_input_contents[1]


# Of `simple`: what is changed, the status, the text.
CASES: dict[str, tuple[Change, str, str]] = {
    "unknown model": (
        lambda r: setattr(r, "model_name", "nope"),
        "NOT_FOUND",
        "Request for unknown model: 'nope' is not found",
    ),
    "no model": (
        lambda r: setattr(r, "model_name", ""),
        "NOT_FOUND",
        "Request for unknown model: '' is not found",
    ),
    "model name with a path": (
        lambda r: setattr(r, "model_name", "../simple"),
        "NOT_FOUND",
        "Request for unknown model: '../simple' is not found",
    ),
    "unknown version": (
        set_version("99"),
        "NOT_FOUND",
        "Request for unknown model: 'simple' version 99 is not found",
    ),
    "version 0": (
        set_version("0"),
        "NOT_FOUND",
        "Request for unknown model: 'simple' version 0 is not found",
    ),
    "version is no number": (
        set_version("abc"),
        "INVALID_ARGUMENT",
        "failed to get model version from specified version string 'abc' (details: stol), "
        "version should be an integral value > 0",
    ),
    "version beyond 64 bits": (
        set_version("99999999999999999999"),
        "INVALID_ARGUMENT",
        "failed to get model version from specified version string '99999999999999999999' "
        "(details: stol), version should be an integral value > 0",
    ),
    "version negative": (
        set_version("-1"),
        "INVALID_ARGUMENT",
        "invalid model version specified '-1' , version should be an integral value > 0",
    ),
    "unknown datatype": (
        set_datatype("INT33"),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "inference input 'INPUT0' data-type is '<invalid>', but model 'simple' "
        "expects 'INT32'",
    ),
    "empty datatype": (
        set_datatype(""),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "inference input 'INPUT0' data-type is '<invalid>', but model 'simple' "
        "expects 'INT32'",
    ),
    "wrong datatype": (
        set_datatype("FP32"),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "inference input 'INPUT0' data-type is 'FP32', but model 'simple' expects "
        "'INT32'",
    ),
    "wrong shape": (
        set_shape(0, 1, 15),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], "
        f"got [1,15]. {NOTE}",
    ),
    "wrong rank": (
        set_shape(0, 1, 4, 4),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], "
        f"got [1,4,4]. {NOTE}",
    ),
    "no batch axis": (
        lambda r: [set_shape(index, 16)(r) for index in range(2)],
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "inference request batch-size must be <= 8 for 'simple'",
    ),
    "no shape": (
        set_shape(1),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "input 'INPUT1' has no shape but model requires batch dimension for 'simple'",
    ),
    "dimension -1": (
        set_shape(0, 1, -1),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "All input dimensions should be specified for input 'INPUT0' for model "
        "'simple', got [1,-1]",
    ),
    "dimension -5": (
        set_shape(0, 1, -5),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "tensor 'INPUT0' contains an invalid dimension [1,-5]",
    ),
    "too many rows": (
        lambda r: [set_shape(index, 9, 16)(r) for index in range(2)],
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "inference request batch-size must be <= 8 for 'simple'",
    ),
    "rows differ": (
        set_shape(1, 2, 16),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "input 'INPUT1' batch size does not match other inputs for 'simple'",
    ),
    "missing input": (
        drop_input,
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) "
        "['INPUT0'], but missing required input(s) ['INPUT1']. Please provide all required "
        "input(s).",
    ),
    "extra input": (
        add_input,
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "expected 2 inputs but got 3 inputs for model 'simple'. Got input(s) "
        "['INPUT0','INPUT1','INPUT2'], but missing required input(s) []. Please provide all "
        "required input(s).",
    ),
    "misnamed input": (
        lambda r: setattr(r.inputs[1], "name", "INPUTX"),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "unexpected inference input 'INPUTX' for model 'simple'",
    ),
    "duplicate input": (
        lambda r: setattr(r.inputs[1], "name", "INPUT0"),
        "INVALID_ARGUMENT",
        "input 'INPUT0' already exists in request",
    ),
    "duplicate output": (
        lambda r: [r.outputs.add(name="OUTPUT0") for _ in range(2)],
        "INVALID_ARGUMENT",
        "output 'OUTPUT0' already exists in request",
    ),
    "unknown output": (
        lambda r: r.outputs.add(name="NOPE"),
        "INVALID_ARGUMENT",
        "unexpected inference output 'NOPE' for model 'simple'",
    ),
    "raw and contents": (
        lambda r: r.inputs[0].contents.int_contents.extend([1] * 16),
        "INVALID_ARGUMENT",
        "contents field must not be specified when using raw_input_contents for 'INPUT0' for "
        "model 'simple'",
    ),
    "fewer raw ones than inputs": (
        lambda r: r.raw_input_contents.pop(),
        "INVALID_ARGUMENT",
        "unable to find data for input tensor 'INPUT1' for model 'simple' in request.",
    ),
    "no data": (
        lambda r: r.ClearField("raw_input_contents"),
        "INVALID_ARGUMENT",
        "unable to find data for input tensor 'INPUT0' for model 'simple' in request.",
    ),
    "raw size": (
        lambda r: r.raw_input_contents.__setitem__(0, bytes(60)),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, "
        "got 60",
    ),
    "typed size": (
        lambda r: typed(r, int_contents=[1] * 15),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, "
        "got 60",
    ),
    "contents that are empty": (
        lambda r: typed(r),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, "
        "got 0",
    ),
    "typed field of another type": (
        lambda r: typed(r, fp32_contents=[1.0] * 16),
        "INVALID_ARGUMENT",
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'simple' of type "
        "'FP32', expected datatype 'INT32'",
    ),
    "two typed fields": (
        lambda r: typed(r, int_contents=[1] * 16, fp32_contents=[1.0] * 16),
        "INVALID_ARGUMENT",
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'simple', binary data "
        "was already supplied.",
    ),
    "timeout as text": (
        set_parameter("timeout", "string_param", "1"),
        "INVALID_ARGUMENT",
        "invalid value type for 'timeout' parameter, expected int64_param.",
    ),
    "priority as text": (
        set_parameter("priority", "string_param", "1"),
        "INVALID_ARGUMENT",
        "invalid value type for 'priority' parameter, expected int64_param or uint64_param.",
    ),
    "sequence id as truth": (
        set_parameter("sequence_id", "bool_param", True),
        "INVALID_ARGUMENT",
        "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.",
    ),
    "own parameter without a type": (
        lambda r: r.parameters["mine"].SetInParent(),
        "INVALID_ARGUMENT",
        "invalid value type for 'mine' parameter, expected int64_param, bool_param, or "
        "string_param.",
    ),
    "reserved parameter": (
        set_parameter("triton_mine", "int64_param", 1),
        "INVALID_ARGUMENT",
        RESERVED,
    ),
    "priority below 0": (
        set_parameter("priority", "int64_param", -1),
        "INVALID_ARGUMENT",
        "invalid value for 'priority', expected value >= 0.",
    ),
    "sequence of a model without state": (
        set_parameter("sequence_id", "int64_param", 7),
        "INVALID_ARGUMENT",
        UNKNOWN_ID + "parameter 'sequence_id' is '7', but model 'simple' is not stateful",
    ),
    "place without a region": (
        set_output("shared_memory_byte_size", "int64_param", 64),
        "INVALID_ARGUMENT",
        "'shared_memory_byte_size' can not be specified without 'shared_memory_region' parameter "
        "for tensor 'OUTPUT0'",
    ),
    "region without a size": (
        set_output("shared_memory_region", "string_param", "nothing"),
        "INVALID_ARGUMENT",
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter "
        "for tensor 'OUTPUT0'",
    ),
    "classification of none": (
        set_output("classification", "int64_param", 0),
        "INVALID_ARGUMENT",
        "invalid value for 'classification' parameter, expected >= 0",
    ),
    "classification as text": (
        set_output("classification", "string_param", "3"),
        "INVALID_ARGUMENT",
        "invalid value type for 'classification' parameter, expected int64_param",
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
    set_output("classification", "int64_param", 1)(request)
    text = f"class result not available for output due to unsupported type '{datatype}'"
    code, said = refusal(stub, request)
    assert (code, said.removeprefix(UNKNOWN_ID)) == ("INVALID_ARGUMENT", text)


def test_classes_of_a_huge_output_are_refused(stub: Stub) -> None:
    request = identity("INT8", [1, 1_000_001], bytes(1_000_001))
    set_output("classification", "int64_param", 1)(request)
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


def test_what_the_model_raises_is_internal_and_hurts_nobody_else(stub: Stub) -> None:
    code, text = refusal(stub, asking(99))
    assert code == "INTERNAL"
    assert "out of data bounds" in text
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
