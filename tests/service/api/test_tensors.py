"""`ModelInfer` messages: what is taken, and what is refused, in Triton's words."""

import math
import struct
from collections.abc import Sequence
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
from tests.fakes.refusals import OF_MESSAGE, OF_TENSORS, UNKNOWN_ID, set_output, set_typed
from tests.fakes.serving import NO_SHARING, simple_request
from tests.fakes.sessions import generator_manifest, spec


def signature_of(datatype: str, *dims: int) -> Signature:
    """One input and one output."""
    return Signature((spec("INPUT0", datatype, *dims),), (spec("OUTPUT0", datatype, *dims),))


SIMPLE = Signature(
    (spec("INPUT0", "INT32", 16), spec("INPUT1", "INT32", 16)),
    (spec("OUTPUT0", "INT32", 16), spec("OUTPUT1", "INT32", 16)),
)
STRINGS = signature_of("BYTES", -1)
ANY_SHAPE = signature_of("FP32", -1, -1)


def one_input(datatype: str, shape: Sequence[int], *raw: bytes) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=raw)
    request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    return request


def refusal(request: pb.ModelInferRequest, signature: Signature, max_batch_size: int) -> str:
    with pytest.raises(InvalidArgument) as caught:
        parse_inputs(request, signature, max_batch_size, NO_SHARING)
    return str(caught.value)


@pytest.mark.parametrize("case", OF_MESSAGE)
def test_a_message_that_is_wrong_in_itself_is_refused_in_triton_s_words(case: str) -> None:
    change, text = OF_MESSAGE[case]
    request = simple_request()
    change(request)
    assert refusal(request, SIMPLE, 8) == text


@pytest.mark.parametrize("case", OF_TENSORS)
def test_inputs_that_are_not_the_model_s_are_refused_in_triton_s_words(case: str) -> None:
    change, text = OF_TENSORS[case]
    request = simple_request()
    change(request)
    assert refusal(request, SIMPLE, 8) == UNKNOWN_ID + text
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
    found = refusal(one_input("BYTES", shape, raw), STRINGS, 8)
    assert found == UNKNOWN_ID + text


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
    request = one_input("BYTES", [1, 2])
    set_typed(bytes_contents=elements)(request)
    assert refusal(request, STRINGS, 8) == UNKNOWN_ID + text


@pytest.mark.parametrize(
    "shape", [[1, 2**62, 2**62], [1, 2**61, 2], [8, 2**31, 2**31], [1, 0, 2**62], [0, 2**31, 2**31]]
)
def test_a_shape_whose_bytes_overflow_is_refused_before_memory_is_asked_for(
    shape: list[int],
) -> None:
    request = one_input("FP32", shape, b"1234")
    assert refusal(request, ANY_SHAPE, 8) == (
        "[request id: <id_unknown>] byte size for tensor 'INPUT0' exceeds maximum size of "
        "9223372036854775807"
    )


@pytest.mark.parametrize("count", [NO_SHARING.max_strings + 1, 2**40])
def test_more_strings_than_the_bound_are_refused_before_they_are_read(count: int) -> None:
    """Each is an object: 16 million empty ones would be 64 MiB, and five seconds."""
    request = one_input("BYTES", [1, count], bytes(4 * min(count, 2**18)))
    assert f"has {count} strings, the server takes at most" in refusal(request, STRINGS, 8)


def test_a_shape_of_millions_of_dims_is_refused_without_writing_them_all() -> None:
    """As words, 16 MiB of them would be 32 MiB of text and block the server for seconds."""
    request = one_input("FP32", [1] * 100_000, b"1234")
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


@pytest.mark.parametrize("datatype", ["BYTES", "FP16", "BF16", "BOOL"])
def test_outputs_without_classes_are_refused_before_the_model_runs(datatype: str) -> None:
    request = simple_request()
    set_output("classification", int64_param=1)(request)
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
    assert arrays["INPUT0"].tolist() == [[2] * 16]


def test_the_batch_axis_is_the_number_of_rows() -> None:
    arrays, num_rows = parse_inputs(simple_request(num_rows=5), SIMPLE, 8, NO_SHARING)
    assert num_rows == 5
    assert arrays["INPUT0"].shape == (5, 16)


def test_without_batching_a_request_is_one_row_of_the_full_shape() -> None:
    request = one_input("FP32", [3, 2], bytes(24))
    arrays, num_rows = parse_inputs(request, ANY_SHAPE, 0, NO_SHARING)
    assert num_rows == 1
    assert arrays["INPUT0"].shape == (3, 2)


def test_a_wrong_shape_of_a_model_without_batching_gets_no_advice_on_batching() -> None:
    request = one_input("FP32", [6], bytes(24))
    assert refusal(request, ANY_SHAPE, 0) == (
        "[request id: <id_unknown>] unexpected shape for input 'INPUT0' for model 'm'. Expected "
        "[-1,-1], got [6]. "
    )


def test_a_scalar_is_taken_where_the_model_has_no_batch_axis() -> None:
    scalar = signature_of("FP32")
    request = one_input("FP32", [], struct.pack("<f", 2.5))
    arrays, _ = parse_inputs(request, scalar, 0, NO_SHARING)
    assert arrays["INPUT0"].shape == ()
    assert arrays["INPUT0"] == 2.5


@pytest.mark.parametrize(("shape", "num_rows"), [([1, 0], 1), ([0, 3], 0), ([0, 0], 0)])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_tensors_of_no_elements_are_taken(datatype: str, shape: list[int], num_rows: int) -> None:
    signature = signature_of(datatype, -1)
    request = one_input(datatype, shape, b"")
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
    signature = signature_of(datatype, 2)
    array = np.array([*values, None], object)[:-1].astype(DATATYPES[datatype].dtype)
    raw, explicit = (pb.ModelInferRequest(model_name="m") for _ in range(2))
    for request in (raw, explicit):
        request.inputs.add(name="INPUT0", datatype=datatype, shape=[1, 2])
    raw.raw_input_contents.append(to_raw(array))
    fields: dict[str, Any] = {field: values}
    set_typed(**fields)(explicit)
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
    signature = signature_of(datatype, 1)
    request = one_input(datatype, [1, 1], b"\x80\x3f")
    arrays, _ = parse_inputs(request, signature, 8, NO_SHARING)
    assert arrays["INPUT0"].tobytes() == b"\x80\x3f"
    set_typed(fp32_contents=[1.0])(request)
    assert refusal(request, signature, 8) == (
        "unexpected explicit tensor data for input tensor 'INPUT0' for model 'm' of type 'FP32', "
        f"expected datatype '{datatype}'"
    )


def test_narrow_integers_are_cut_as_triton_does() -> None:
    """300 as INT8 keeps its low byte: 44."""
    signature = signature_of("INT8", 1)
    request = one_input("INT8", [1, 1])
    set_typed(int_contents=[300])(request)
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
    signature = signature_of(datatype, *dims)
    request = one_input(datatype, array.shape, to_raw(array))
    requests, field = [request], DATATYPES[datatype].contents_field
    if field is not None:
        explicit = pb.ModelInferRequest()
        explicit.CopyFrom(request)
        contents: dict[str, Any] = {field: array.ravel().tolist()}
        set_typed(**contents)(explicit)
        requests.append(explicit)
    for sent in requests:
        arrays, _ = parse_inputs(sent, signature, 0, NO_SHARING)
        assert arrays["INPUT0"].shape == array.shape
        assert to_raw(arrays["INPUT0"]) == to_raw(array)


@given(st.binary(max_size=64), st.sampled_from(sorted(DATATYPES)), st.integers(0, 9))
def test_arbitrary_bytes_are_a_tensor_or_refused(raw: bytes, datatype: str, count: int) -> None:
    signature = signature_of(datatype, -1)
    request = one_input(datatype, [count], raw)
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
    "optional", [(), ("stream",), ("stream", "sampling_parameters", "exclude_input_in_output")]
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
