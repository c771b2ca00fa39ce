"""`ModelInfer` messages: what is taken, and what is refused, in Triton's words."""

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tritonclient.grpc import service_pb2 as pb

from service.api.tensors import parse_inputs
from service.contract.tensors import DATATYPES, Signature, to_raw
from service.errors import InvalidArgument, Unimplemented
from service.serving.tasks.table import text_signature
from tests.fakes.serving import NO_SHARING
from tests.fakes.sessions import generator_manifest, spec

SIMPLE = Signature(
    (spec("INPUT0", "INT32", 16), spec("INPUT1", "INT32", 16)),
    (spec("OUTPUT0", "INT32", 16), spec("OUTPUT1", "INT32", 16)),
)
STRINGS = Signature((spec("INPUT0", "BYTES", -1),), (spec("OUTPUT0", "BYTES", -1),))
ANY_SHAPE = Signature((spec("INPUT0", "FP32", -1, -1),), (spec("OUTPUT0", "FP32", -1, -1),))
Change = Callable[[pb.ModelInferRequest], Any]


def simple_request(num_rows: int = 1) -> pb.ModelInferRequest:
    """Two raw inputs that model `simple`, of at most 8 rows, takes."""
    request = pb.ModelInferRequest(model_name="simple")
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[num_rows, 16])
        request.raw_input_contents.append(bytes(64 * num_rows))
    return request


def strings_request(shape: list[int], raw: bytes | None = None) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="INPUT0", datatype="BYTES", shape=shape)
    if raw is not None:
        request.raw_input_contents.append(raw)
    return request


def typed(request: pb.ModelInferRequest, **contents: Any) -> None:
    """Send the first input as typed contents and drop every raw one."""
    del request.raw_input_contents[:]
    request.inputs[0].contents.CopyFrom(pb.InferTensorContents(**contents))


def send_typed(request: pb.ModelInferRequest, first: list[int], second: list[int]) -> None:
    typed(request, int_contents=first)
    request.inputs[1].contents.CopyFrom(pb.InferTensorContents(int_contents=second))


def send_strings(request: pb.ModelInferRequest) -> None:
    send_typed(request, [], [1] * 16)
    request.inputs[0].datatype = "BYTES"
    typed(request, bytes_contents=[b"a"] * 16)


def reshape(request: pb.ModelInferRequest, shape: list[int], index: int = 0) -> None:
    request.inputs[index].shape[:] = shape


def reshape_all(request: pb.ModelInferRequest, shape: list[int]) -> None:
    for index in range(len(request.inputs)):
        reshape(request, shape, index)


def refusal(request: pb.ModelInferRequest, signature: Signature, max_batch_size: int) -> str:
    with pytest.raises(InvalidArgument) as caught:
        parse_inputs(request, signature, max_batch_size, NO_SHARING)
    return str(caught.value)


def extra_input(request: pb.ModelInferRequest) -> None:
    request.inputs.add(name="INPUT2", datatype="INT32", shape=[1, 16])
    request.raw_input_contents.append(bytes(64))


SHAPE_NOTE = (
    ". NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to "
    "be prepended to each input shape. If you want to specify the full shape including the batch "
    "dim in your input dims config, try setting max_batch_size to zero. See the model "
    "configuration docs for more info on max_batch_size."
)
# Checks on the message as such: no request id in the text.
PLAIN: dict[str, tuple[Change, str]] = {
    "duplicate input": (
        lambda r: setattr(r.inputs[1], "name", "INPUT0"),
        "input 'INPUT0' already exists in request",
    ),
    "duplicate output": (
        lambda r: [r.outputs.add(name="OUTPUT0") for _ in range(2)],
        "output 'OUTPUT0' already exists in request",
    ),
    "unknown output": (
        lambda r: r.outputs.add(name="NOPE"),
        "unexpected inference output 'NOPE' for model 'simple'",
    ),
    "raw and contents": (
        lambda r: r.inputs[0].contents.int_contents.extend([1] * 16),
        "contents field must not be specified when using raw_input_contents for 'INPUT0' "
        "for model 'simple'",
    ),
    "fewer raw entries than inputs": (
        lambda r: r.raw_input_contents.pop(),
        "unable to find data for input tensor 'INPUT1' for model 'simple' in request.",
    ),
    "no data": (
        lambda r: r.ClearField("raw_input_contents"),
        "unable to find data for input tensor 'INPUT0' for model 'simple' in request.",
    ),
    "typed field of another type": (
        lambda r: typed(r, fp32_contents=[1.0] * 16),
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'simple' "
        "of type 'FP32', expected datatype 'INT32'",
    ),
    "two typed fields": (
        lambda r: typed(r, int_contents=[1] * 16, int64_contents=[1] * 16),
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'simple', "
        "binary data was already supplied.",
    ),
}
# Checks against the model: prefixed with the request's id.
PREFIXED: dict[str, tuple[Change, str]] = {
    "missing input": (
        lambda r: (r.inputs.pop(), r.raw_input_contents.pop()),
        "expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) ['INPUT0'], but "
        "missing required input(s) ['INPUT1']. Please provide all required input(s).",
    ),
    "no inputs": (
        lambda r: (r.ClearField("inputs"), r.ClearField("raw_input_contents")),
        "expected 2 inputs but got 0 inputs for model 'simple'. Got input(s) [], but missing "
        "required input(s) ['INPUT0','INPUT1']. Please provide all required input(s).",
    ),
    "extra input": (
        extra_input,
        "expected 2 inputs but got 3 inputs for model 'simple'. Got input(s) "
        "['INPUT0','INPUT1','INPUT2'], but missing required input(s) []. Please provide all "
        "required input(s).",
    ),
    "misnamed input": (
        lambda r: setattr(r.inputs[1], "name", "INPUTX"),
        "unexpected inference input 'INPUTX' for model 'simple'",
    ),
    "wrong dtype": (
        lambda r: setattr(r.inputs[0], "datatype", "FP32"),
        "inference input 'INPUT0' data-type is 'FP32', but model 'simple' expects 'INT32'",
    ),
    "bfloat16": (
        lambda r: setattr(r.inputs[0], "datatype", "BF16"),
        "inference input 'INPUT0' data-type is 'BF16', but model 'simple' expects 'INT32'",
    ),
    "unknown dtype": (
        lambda r: setattr(r.inputs[0], "datatype", "INT33"),
        "inference input 'INPUT0' data-type is '<invalid>', but model 'simple' expects 'INT32'",
    ),
    "empty dtype": (
        lambda r: setattr(r.inputs[0], "datatype", ""),
        "inference input 'INPUT0' data-type is '<invalid>', but model 'simple' expects 'INT32'",
    ),
    "BYTES for numbers": (
        send_strings,
        "inference input 'INPUT0' data-type is 'BYTES', but model 'simple' expects 'INT32'",
    ),
    "wrong shape": (
        lambda r: reshape(r, [1, 15]),
        "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], got [1,15]"
        + SHAPE_NOTE,
    ),
    "wrong rank": (
        lambda r: reshape(r, [1, 4, 4]),
        "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], got [1,4,4]"
        + SHAPE_NOTE,
    ),
    "rank 1 that is read as a batch": (
        lambda r: reshape_all(r, [16]),
        "inference request batch-size must be <= 8 for 'simple'",
    ),
    "no shape": (
        lambda r: reshape(r, [], 1),
        "input 'INPUT1' has no shape but model requires batch dimension for 'simple'",
    ),
    "dimension -1": (
        lambda r: reshape_all(r, [1, -1]),
        "All input dimensions should be specified for input 'INPUT0' for model 'simple', "
        "got [1,-1]",
    ),
    "negative dimension": (
        lambda r: reshape_all(r, [1, -5]),
        "tensor 'INPUT0' contains an invalid dimension [1,-5]",
    ),
    "negative batch": (
        lambda r: reshape_all(r, [-5, 16]),
        "tensor 'INPUT0' contains an invalid dimension [-5,16]",
    ),
    "batch above the limit": (
        lambda r: reshape_all(r, [9, 16]),
        "inference request batch-size must be <= 8 for 'simple'",
    ),
    "batch differs": (
        lambda r: reshape(r, [2, 16], 1),
        "input 'INPUT1' batch size does not match other inputs for 'simple'",
    ),
    "raw size wrong": (
        lambda r: r.raw_input_contents.__setitem__(0, bytes(60)),
        "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got 60",
    ),
    "typed size wrong": (
        lambda r: send_typed(r, [1] * 15, [1] * 16),
        "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got 60",
    ),
    "contents present but empty": (
        lambda r: send_typed(r, [], []),
        "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got 0",
    ),
}


@pytest.mark.parametrize("case", PLAIN)
def test_a_message_that_is_wrong_in_itself_is_refused_in_triton_s_words(case: str) -> None:
    change, text = PLAIN[case]
    request = simple_request()
    change(request)
    assert refusal(request, SIMPLE, 8) == text


@pytest.mark.parametrize("case", PREFIXED)
def test_inputs_that_are_not_the_model_s_are_refused_in_triton_s_words(case: str) -> None:
    change, text = PREFIXED[case]
    request = simple_request()
    change(request)
    assert refusal(request, SIMPLE, 8) == f"[request id: <id_unknown>] {text}"
    request.id = "seven"
    assert refusal(request, SIMPLE, 8) == f"[request id: seven] {text}"


@pytest.mark.parametrize(
    ("shape", "raw", "text"),
    [
        (
            [1, 2],
            b"\1\0\0\0a",
            "expected 2 string elements for inference input 'INPUT0' for model 'm', got 1",
        ),
        (
            [1, 2],
            b"\1\0\0\0a" * 3,
            "unexpected number of string elements 3 for inference input 'INPUT0' for model 'm', "
            "expecting 2",
        ),
        (
            [1, 2],
            b"\1\0\0\0a\1\0",
            "incomplete string length indicator for inference input 'INPUT0' for model 'm', "
            "expecting 4 bytes but only 2 bytes available. Please make sure the string length "
            "indicator is in one buffer.",
        ),
        (
            [1, 1],
            struct.pack("<I", 100) + b"abc",
            "incomplete string data for inference input 'INPUT0', "
            "expecting string of length 100 but only 3 bytes available",
        ),
    ],
)
def test_strings_that_do_not_add_up_are_refused_in_triton_s_words(
    shape: list[int], raw: bytes, text: str
) -> None:
    found = refusal(strings_request(shape, raw), STRINGS, 8)
    assert found == f"[request id: <id_unknown>] {text}"


@pytest.mark.parametrize(
    ("elements", "text"),
    [
        ([b"a"], "expected 2 string elements for inference input 'INPUT0' for model 'm', got 1"),
        ([], "expected 2 string elements for inference input 'INPUT0' for model 'm', got 0"),
        (
            [b"a"] * 3,
            "unexpected number of string elements 3 for inference input 'INPUT0' for model 'm', "
            "expecting 2",
        ),
    ],
)
def test_typed_strings_are_counted(elements: list[bytes], text: str) -> None:
    request = strings_request([1, 2])
    typed(request, bytes_contents=elements)
    assert refusal(request, STRINGS, 8) == f"[request id: <id_unknown>] {text}"


@pytest.mark.parametrize(
    "shape",
    [[1, 2**62, 2**62], [1, 2**61, 2], [8, 2**31, 2**31], [1, 0, 2**62], [0, 2**31, 2**31]],
)
def test_a_shape_whose_bytes_overflow_is_refused_before_memory_is_asked_for(
    shape: list[int],
) -> None:
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=shape)
    request.raw_input_contents.append(b"1234")
    assert refusal(request, ANY_SHAPE, 8) == (
        "[request id: <id_unknown>] byte size for tensor 'INPUT0' exceeds maximum size of "
        "9223372036854775807"
    )


@pytest.mark.parametrize("count", [NO_SHARING.max_strings + 1, 2**40])
def test_more_strings_than_the_bound_are_refused_before_they_are_read(count: int) -> None:
    """Each is an object: 16 million empty ones would be 64 MiB, and five seconds."""
    request = strings_request([1, count], bytes(4 * min(count, 2**18)))
    assert f"has {count} strings, the server takes at most" in refusal(request, STRINGS, 8)


def test_a_shape_of_millions_of_dims_is_refused_without_writing_them_all() -> None:
    """As words, 16 MiB of them would be 32 MiB of text and block the server for seconds."""
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[1] * 100_000)
    request.raw_input_contents.append(b"1234")
    text = refusal(request, ANY_SHAPE, 8)
    assert "Expected [-1,-1,-1], got [1,1,1" in text
    assert len(text) < 1_000


def shared(tensor: Any, **parameters: int) -> None:
    tensor.parameters["shared_memory_region"].string_param = "region"
    for name, value in parameters.items():
        tensor.parameters[f"shared_memory_{name}"].int64_param = value


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_shared_memory_is_not_offered_unless_the_server_was_told_so(side: str) -> None:
    request = simple_request()
    request.outputs.add(name="OUTPUT0")
    shared(getattr(request, side)[0], byte_size=64)
    with pytest.raises(Unimplemented) as caught:
        parse_inputs(request, SIMPLE, 8, NO_SHARING)
    assert str(caught.value) == (
        "Client shared memory is disabled. Start the server with '--allow-client-shm' to enable."
    )


def classes(request: pb.ModelInferRequest, **value: Any) -> None:
    """Ask for the first output as classes."""
    parameter = pb.InferParameter(**value)
    request.outputs.add(name="OUTPUT0").parameters["classification"].CopyFrom(parameter)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"int64_param": 0}, "invalid value for 'classification' parameter, expected >= 0"),
        ({"int64_param": -2}, "invalid value for 'classification' parameter, expected >= 0"),
        (
            {"uint64_param": 1},
            "invalid value type for 'classification' parameter, expected int64_param",
        ),
        ({}, "invalid value type for 'classification' parameter, expected int64_param"),
    ],
)
def test_a_wrong_number_of_classes_is_refused_in_triton_s_words(
    value: dict[str, Any], text: str
) -> None:
    request = simple_request()
    classes(request, **value)
    assert refusal(request, SIMPLE, 8) == text


@pytest.mark.parametrize("datatype", ["BYTES", "FP16", "BF16", "BOOL"])
def test_outputs_without_classes_are_refused_before_the_model_runs(datatype: str) -> None:
    request = simple_request()
    classes(request, int64_param=1)
    signature = Signature(SIMPLE.inputs, (spec("OUTPUT0", datatype, 16),))
    assert refusal(request, signature, 8) == (
        f"class result not available for output due to unsupported type '{datatype}'"
    )


def test_surplus_raw_entries_are_ignored() -> None:
    request = simple_request()
    request.raw_input_contents.append(b"more")
    arrays, _ = parse_inputs(request, SIMPLE, 8, NO_SHARING)
    assert set(arrays) == {"INPUT0", "INPUT1"}


def test_raw_entries_belong_to_the_inputs_in_the_request_s_order() -> None:
    request = simple_request()
    request.inputs[0].name, request.inputs[1].name = "INPUT1", "INPUT0"
    request.raw_input_contents[0] = np.full(16, 7, "<i4").tobytes()
    arrays, _ = parse_inputs(request, SIMPLE, 8, NO_SHARING)
    assert arrays["INPUT1"].tolist() == [[7] * 16]
    assert arrays["INPUT0"].tolist() == [[0] * 16]


def test_the_batch_axis_is_the_number_of_rows() -> None:
    arrays, num_rows = parse_inputs(simple_request(num_rows=5), SIMPLE, 8, NO_SHARING)
    assert num_rows == 5
    assert arrays["INPUT0"].shape == (5, 16)


def test_without_batching_a_request_is_one_row_of_the_full_shape() -> None:
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[3, 2])
    request.raw_input_contents.append(bytes(24))
    arrays, num_rows = parse_inputs(request, ANY_SHAPE, 0, NO_SHARING)
    assert num_rows == 1
    assert arrays["INPUT0"].shape == (3, 2)


def test_a_wrong_shape_of_a_model_without_batching_gets_no_advice_on_batching() -> None:
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[bytes(24)])
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[6])
    assert refusal(request, ANY_SHAPE, 0) == (
        "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'm'. Expected "
        "[-1,-1], got [6]. "
    )


def test_a_scalar_is_taken_where_the_model_has_no_batch_axis() -> None:
    scalar = Signature((spec("INPUT0", "FP32"),), (spec("OUTPUT0", "FP32"),))
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="INPUT0", datatype="FP32", shape=[])
    request.raw_input_contents.append(struct.pack("<f", 2.5))
    arrays, _ = parse_inputs(request, scalar, 0, NO_SHARING)
    assert arrays["INPUT0"].shape == ()
    assert arrays["INPUT0"] == 2.5


@pytest.mark.parametrize(("shape", "num_rows"), [([1, 0], 1), ([0, 3], 0), ([0, 0], 0)])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_tensors_of_no_elements_are_taken(datatype: str, shape: list[int], num_rows: int) -> None:
    signature = Signature((spec("INPUT0", datatype, -1),), (spec("OUTPUT0", datatype, -1),))
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    request.raw_input_contents.append(b"")
    arrays, found_rows = parse_inputs(request, signature, 8, NO_SHARING)
    assert arrays["INPUT0"].shape == tuple(shape)
    assert found_rows == num_rows


TYPED = [
    ("BOOL", "bool_contents", [True, False]),
    ("INT8", "int_contents", [-128, 127]),
    ("INT16", "int_contents", [-(2**15), 2**15 - 1]),
    ("INT32", "int_contents", [-(2**31), 2**31 - 1]),
    ("INT64", "int64_contents", [-(2**63), 2**63 - 1]),
    ("UINT8", "uint_contents", [0, 255]),
    ("UINT16", "uint_contents", [0, 2**16 - 1]),
    ("UINT32", "uint_contents", [0, 2**32 - 1]),
    ("UINT64", "uint64_contents", [0, 2**64 - 1]),
    ("FP32", "fp32_contents", [-1.5, 2.0**127]),
    ("FP64", "fp64_contents", [-1.5, 1e300]),
    ("BYTES", "bytes_contents", [b"", b"\x00\xff"]),
]


@pytest.mark.parametrize(("datatype", "field", "values"), TYPED, ids=lambda value: str(value))
def test_typed_and_raw_contents_give_equal_arrays(
    datatype: str, field: str, values: list[Any]
) -> None:
    signature = Signature((spec("INPUT0", datatype, 2),), (spec("OUTPUT0", datatype, 2),))
    array = np.array([*values, None], object)[:-1].astype(DATATYPES[datatype].dtype)
    raw, explicit = (pb.ModelInferRequest(model_name="m") for _ in range(2))
    for request in (raw, explicit):
        request.inputs.add(name="INPUT0", datatype=datatype, shape=[1, 2])
    raw.raw_input_contents.append(to_raw(array))
    fields: dict[str, Any] = {field: values}
    typed(explicit, **fields)
    (from_raw, _), (from_typed, _) = (
        parse_inputs(r, signature, 8, NO_SHARING) for r in (raw, explicit)
    )
    assert from_raw["INPUT0"].dtype == from_typed["INPUT0"].dtype == DATATYPES[datatype].dtype
    assert from_raw["INPUT0"].tolist() == from_typed["INPUT0"].tolist() == [values]


def test_every_type_with_typed_contents_is_in_the_table_above() -> None:
    expected = {d.name for d in DATATYPES.values() if d.contents_field is not None}
    assert {row[0] for row in TYPED} == expected


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_goes_raw_only(datatype: str) -> None:
    signature = Signature((spec("INPUT0", datatype, 1),), (spec("OUTPUT0", datatype, 1),))
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="INPUT0", datatype=datatype, shape=[1, 1])
    request.raw_input_contents.append(b"\x80\x3f")
    arrays, _ = parse_inputs(request, signature, 8, NO_SHARING)
    assert arrays["INPUT0"].tobytes() == b"\x80\x3f"
    typed(request, fp32_contents=[1.0])
    assert refusal(request, signature, 8) == (
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'm' of type 'FP32', "
        f"expected datatype '{datatype}'"
    )


def test_narrow_integers_are_cut_as_triton_does() -> None:
    """300 as INT8 keeps its low byte: 44."""
    signature = Signature((spec("INPUT0", "INT8", 1),), (spec("OUTPUT0", "INT8", 1),))
    request = pb.ModelInferRequest(model_name="m")
    request.inputs.add(name="INPUT0", datatype="INT8", shape=[1, 1])
    typed(request, int_contents=[300])
    arrays, _ = parse_inputs(request, signature, 8, NO_SHARING)
    assert arrays["INPUT0"].tolist() == [[44]]


SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)
ELEMENTS = st.binary(max_size=9)


def any_array(data: st.DataObject, datatype: str) -> np.ndarray:
    shape = data.draw(SHAPES)
    if datatype != "BYTES":
        return data.draw(hnp.arrays(DATATYPES[datatype].dtype, shape))
    count = math.prod(shape)
    elements = data.draw(st.lists(ELEMENTS, min_size=count, max_size=count))
    return np.array([*elements, None], object)[:-1].reshape(shape)


@given(st.data(), st.sampled_from(sorted(DATATYPES)))
def test_every_type_and_shape_arrives_as_it_was_sent(data: st.DataObject, datatype: str) -> None:
    """Raw, and typed where the type has a field: NaN, empty tensors and ragged strings too."""
    array = any_array(data, datatype)
    dims = (-1,) * array.ndim
    signature = Signature((spec("INPUT0", datatype, *dims),), (spec("OUTPUT0", datatype, *dims),))
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[to_raw(array)])
    request.inputs.add(name="INPUT0", datatype=datatype, shape=array.shape)
    requests, field = [request], DATATYPES[datatype].contents_field
    if field is not None:
        explicit = pb.ModelInferRequest()
        explicit.CopyFrom(request)
        contents: dict[str, Any] = {field: array.ravel().tolist()}
        typed(explicit, **contents)
        requests.append(explicit)
    for sent in requests:
        arrays, _ = parse_inputs(sent, signature, 0, NO_SHARING)
        assert arrays["INPUT0"].shape == array.shape
        assert to_raw(arrays["INPUT0"]) == to_raw(array)


@given(st.binary(max_size=64), st.sampled_from(sorted(DATATYPES)), st.integers(0, 9))
def test_arbitrary_bytes_are_a_tensor_or_refused(raw: bytes, datatype: str, count: int) -> None:
    signature = Signature((spec("INPUT0", datatype, -1),), (spec("OUTPUT0", datatype, -1),))
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[raw])
    request.inputs.add(name="INPUT0", datatype=datatype, shape=[count])
    try:
        arrays, _ = parse_inputs(request, signature, 0, NO_SHARING)
    except InvalidArgument:
        return
    assert to_raw(arrays["INPUT0"]) == raw


TENSORS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    name=st.sampled_from(["INPUT0", "INPUT1", "X"]),
    datatype=st.sampled_from(["INT32", "FP32", "BYTES", "", "BF16"]),
    shape=st.lists(st.sampled_from([-5, -1, 0, 1, 2, 16, 2**62]), max_size=3),
)

CONTENTS = [
    pb.InferTensorContents(),
    pb.InferTensorContents(int_contents=[1] * 16),
    pb.InferTensorContents(fp32_contents=[0.5]),
    pb.InferTensorContents(bytes_contents=[b"", b"\xff"]),
    pb.InferTensorContents(bool_contents=[True], uint64_contents=[2**64 - 1]),
]


@given(
    st.lists(TENSORS, max_size=3),
    st.lists(st.binary(max_size=130) | st.just(bytes(64)), max_size=3),
    st.sampled_from([0, 8]),
    st.sampled_from([SIMPLE, STRINGS, ANY_SHAPE]),
    st.lists(st.sampled_from(CONTENTS), max_size=3),
    st.lists(st.integers(-1, 3), max_size=2),
)
def test_any_message_is_taken_or_refused_and_nothing_else(
    tensors: list[dict[str, Any]],
    raw: list[bytes],
    max_batch_size: int,
    signature: Signature,
    contents: list[pb.InferTensorContents],
    class_counts: list[int],
) -> None:
    """Some inputs with typed contents, right or wrong; some outputs as any number of classes."""
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=raw)
    for fields in tensors:
        request.inputs.add(**fields)
    for tensor, explicit in zip(request.inputs, contents, strict=False):
        tensor.contents.CopyFrom(explicit)
    for index, count in enumerate(class_counts):
        output = request.outputs.add(name=f"OUTPUT{index}")
        output.parameters["classification"].int64_param = count
    try:
        arrays, num_rows = parse_inputs(request, signature, max_batch_size, NO_SHARING)
    except InvalidArgument:
        return
    assert set(arrays) == {tensor.name for tensor in signature.inputs}
    assert 0 <= num_rows <= max(1, max_batch_size)


GENERATION = text_signature(generator_manifest())


def prompt_request(*names: str) -> pb.ModelInferRequest:
    """Inputs of a generative model by name, each of one element."""
    request = pb.ModelInferRequest(model_name="tale")
    for name in names:
        is_flag = name in ("stream", "exclude_input_in_output")
        request.inputs.add(name=name, datatype="BOOL" if is_flag else "BYTES", shape=[1])
        request.raw_input_contents.append(b"\1" if is_flag else struct.pack("<I", 1) + b"a")
    return request


@pytest.mark.parametrize(
    "optional",
    [(), ("stream",), ("stream", "sampling_parameters", "exclude_input_in_output")],
)
def test_optional_inputs_may_be_left_out(optional: tuple[str, ...]) -> None:
    arrays, num_rows = parse_inputs(
        prompt_request("text_input", *optional), GENERATION, 0, NO_SHARING
    )
    assert tuple(arrays) == ("text_input", *optional)
    assert num_rows == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((), "but got 0 inputs for model 'tale'. Got input(s) [], but missing required input(s) "),
        (
            ("stream", "exclude_input_in_output"),
            "but got 2 inputs for model 'tale'. Got input(s) ['exclude_input_in_output','stream'], "
            "but missing required input(s) ",
        ),
    ],
)
def test_a_required_input_that_is_missing_is_named(given: tuple[str, ...], text: str) -> None:
    assert refusal(prompt_request(*given), GENERATION, 0) == (
        f"[request id: <id_unknown>] expected number of inputs between 1 and 4 {text}"
        "['text_input']. Please provide all required input(s)."
    )


def test_more_inputs_than_there_are_is_refused_with_the_range() -> None:
    names = ("text_input", "stream", "sampling_parameters", "exclude_input_in_output", "more")
    assert refusal(prompt_request(*names), GENERATION, 0) == (
        "[request id: <id_unknown>] expected number of inputs between 1 and 4 but got 5 inputs for "
        "model 'tale'. Got input(s) ['exclude_input_in_output','more','sampling_parameters',"
        "'stream','text_input'], but missing required input(s) []. Please provide all required "
        "input(s)."
    )


def test_a_misnamed_input_beside_optional_ones_is_refused_by_its_name() -> None:
    assert refusal(prompt_request("text_input", "streams"), GENERATION, 0) == (
        "[request id: <id_unknown>] unexpected inference input 'streams' for model 'tale'"
    )
