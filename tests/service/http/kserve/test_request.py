"""Bodies of infer requests: their framing, and the message that comes of them."""

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.api.infer import MAX_PARAMETERS
from service.api.tensors import parse_inputs
from service.contract.interface import ModelInterface
from service.contract.tensors import DATATYPES, Signature
from service.errors import InvalidArgument
from service.http.kserve.raw_request import raw_infer
from service.http.kserve.request import InferCall, header_length_of, parse_infer
from service.http.wire.plain import plain
from tests.fakes.serving import NO_SHARING
from tests.fakes.sessions import spec

X = {"name": "x", "datatype": "INT32", "shape": [2], "data": [1, 2]}


def parse(
    content: Any, binary: bytes = b"", *, header_length: int | None = None, pad: int = 0
) -> InferCall:
    header = (json.dumps(content) if not isinstance(content, str) else content).encode()
    header += b" " * pad
    length = len(header) if header_length is None else header_length
    return parse_infer(header + binary, length, "m", "")


def refusal(content: Any, binary: bytes = b"") -> str:
    with pytest.raises(InvalidArgument) as caught:
        parse(content, binary)
    return str(caught.value)


def arrays_of(call: InferCall, *specs: Any) -> dict[str, np.ndarray]:
    arrays, _ = parse_inputs(call.message, Signature(specs, ()), 0, NO_SHARING)
    return arrays


def test_json_values_are_the_tensor_s_bytes() -> None:
    call = parse({"id": "seven", "inputs": [X]})
    assert (call.message.id, call.message.model_name) == ("seven", "m")
    arrays = arrays_of(call, spec("x", "INT32", 2))
    assert arrays["x"].tolist() == [1, 2]


def test_blobs_follow_in_the_order_of_the_inputs_between_those_in_json() -> None:
    y = {"name": "y", "datatype": "INT16", "shape": [1], "parameters": {"binary_data_size": 2}}
    z = {"name": "z", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}}
    e = {"name": "e", "datatype": "FP32", "shape": [0], "parameters": {"binary_data_size": 0}}
    call = parse({"inputs": [y, X, e, z]}, b"\x05\x00" + b"\x01\x00\x00\x00q")
    arrays = arrays_of(
        call, spec("y", "INT16", 1), spec("x", "INT32", 2), spec("e", "FP32", -1),
        spec("z", "BYTES", 1),
    )  # fmt: skip
    assert (arrays["y"].tolist(), arrays["x"].tolist()) == ([5], [1, 2])
    assert (arrays["e"].size, arrays["z"].tolist()) == (0, [b"q"])


@pytest.mark.parametrize("pad", range(8))
def test_binary_tensors_are_aligned_and_stay_where_they_are_if_they_can(pad: int) -> None:
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP64", "shape": [1000]}
    tensor["parameters"] = {"binary_data_size": 8000}
    values = np.arange(1000, dtype="<f8")
    call = parse({"inputs": [tensor]}, values.tobytes(), pad=pad)
    array = arrays_of(call, spec("x", "FP64", 1000))["x"]
    assert array.flags.aligned
    assert array.tolist() == values.tolist()
    (content,) = call.message.raw_input_contents
    assert isinstance(content, memoryview | bytes)
    assert np.frombuffer(content, np.uint8).ctypes.data % 8 == 0


def test_one_of_eight_starts_needs_no_copy() -> None:
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP64", "shape": [1]}
    tensor["parameters"] = {"binary_data_size": 8}
    calls = [parse({"inputs": [tensor]}, bytes(8), pad=pad) for pad in range(8)]
    contents = [call.message.raw_input_contents[0] for call in calls]
    bodies = [content.obj for content in contents if isinstance(content, memoryview)]
    assert [type(body) for body in bodies].count(bytes) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("abc", "Unable to parse Inference-Header-Content-Length, got: abc"),
        ("-1", "Unable to parse Inference-Header-Content-Length, got: -1"),
        ("", "Unable to parse Inference-Header-Content-Length, got: "),
        ("1.5", "Unable to parse Inference-Header-Content-Length, got: 1.5"),
        ("\u0661", "Unable to parse Inference-Header-Content-Length, got: \u0661"),
        ("9" * 30, f"Unable to parse Inference-Header-Content-Length, got: {'9' * 30}"),
        ("11", "inference header size should be in range (0, 10), got: 11"),
    ],
)
def test_a_header_length_is_a_number_within_the_body(value: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        header_length_of(value, 10)
    assert str(caught.value) == text


def test_without_a_header_length_all_is_json() -> None:
    assert header_length_of(None, 10) == header_length_of("10", 10) == 10
    assert header_length_of("0", 10) == 0


BINARY = {"name": "x", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}}
ONE_SOURCE = (
    "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
    "'shared_memory_region' in 'parameters'. But "
)


@pytest.mark.parametrize(
    ("content", "binary", "text"),
    [
        (
            {"inputs": [BINARY]},
            bytes(3),
            "unexpected size for input 'x', expecting 5 additional bytes for model 'm'",
        ),
        (
            {"inputs": [BINARY]},
            bytes(9),
            "unexpected additional input data for model 'm': 1 bytes follow those of the inputs",
        ),
        ({"inputs": [{**BINARY, "data": [1]}]}, b"", ONE_SOURCE + "set 'data' 'binary_data_size'"),
        (
            {"inputs": [{"name": "x", "datatype": "INT32", "shape": [2]}]},
            b"",
            ONE_SOURCE + "no field is set",
        ),
        (
            {"inputs": [{**BINARY, "parameters": {"binary_data_size": -1}}]},
            b"",
            "Unable to parse 'binary_data_size': expected a number of bytes",
        ),
        (
            {"inputs": [{**BINARY, "parameters": {"binary_data_size": True}}]},
            b"",
            "Unable to parse 'binary_data_size': expected a number of bytes",
        ),
        (
            {"inputs": [X], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]},
            b"",
            "Unable to parse 'binary_data': expected true or false",
        ),
        (
            {"inputs": [X], "parameters": {"binary_data_output": "yes"}},
            b"",
            "Unable to parse 'binary_data_output': expected true or false",
        ),
        (
            {"inputs": [X], "parameters": {"p": {"q": 1}}},
            b"",
            "parameter 'p' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {"inputs": [X], "parameters": {"p": 2**64}},
            b"",
            "parameter 'p' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {
                "inputs": [X],
                "outputs": [
                    {
                        "name": "y",
                        "parameters": {"shared_memory_region": "r", "binary_data": True},
                    }
                ],
            },
            b"",
            "Output can't set both 'shared_memory_region' and 'binary_data'",
        ),
        ({}, b"", "the request's JSON is not as expected: inputs is missing"),
        ([], b"", "the request's JSON is not as expected: the body is a list, expected an object"),
        (
            {"inputs": [{**X, "shape": [1.5]}]},
            b"",
            "the request's JSON is not as expected: inputs[0].shape[0] is a "
            "number, expected a whole number",
        ),
        (
            '{"parameters":{"p":' + "[" * 100_000,
            b"",
            "the request's JSON has too many lists inside each other",
        ),
    ],
)
def test_a_request_that_is_wrong_in_its_form_is_refused_by_name(
    content: Any, binary: bytes, text: str
) -> None:
    assert refusal(content, binary) == text


def test_parameters_of_a_request_are_bounded() -> None:
    parameters = dict.fromkeys(map(str, range(MAX_PARAMETERS)), 1)
    assert parse({"inputs": [X], "parameters": parameters}).message.parameters
    body = json.dumps({"inputs": [X], "parameters": {**parameters, "more": 1}}).encode()
    with pytest.raises(InvalidArgument, match="has 1025 parameters, the server takes at most 1024"):
        parse_infer(body, len(body), "m", "")


def test_parts_of_a_request_are_bounded_but_not_what_is_in_its_strings() -> None:
    outputs = ",".join('{"name": "y"}' for _ in range(1_001))
    many = f'{{"inputs": [], "outputs": [{outputs}]}}'.encode()
    with pytest.raises(InvalidArgument, match="more than 1000 objects and lists"):
        parse_infer(many, len(many), "m", "", max_parts=1_000)
    rows = json.dumps({"inputs": [{**X, "data": [[1]] * 1_001}]}).encode()
    with pytest.raises(InvalidArgument, match="more than 1000 objects and lists"):
        parse_infer(rows, len(rows), "m", "", max_parts=1_000)
    named = json.dumps({"inputs": [], "parameters": {str(n): "a" for n in range(1_001)}}).encode()
    with pytest.raises(InvalidArgument, match="more than 2000 texts"):
        parse_infer(named, len(named), "m", "", max_parts=1_000)
    texts = {**X, "datatype": "BYTES", "data": ['12:30:45 "a": "b"' * 500]}
    few = json.dumps({"inputs": [texts]}).encode()
    assert few.count(b":") > 1_000
    assert parse_infer(few, len(few), "m", "", max_parts=1_000).message.inputs


@pytest.mark.parametrize("text", ["", "{", '{"inputs": [}', '{"inputs": NaN}', "\x00"])
def test_bodies_that_are_not_json_are_refused(text: str) -> None:
    assert refusal(text).startswith("failed to parse the request JSON buffer: ")


def test_parameters_keep_their_types_and_null_is_absent() -> None:
    parameters = {"a": True, "b": -5, "c": 2**63, "d": "text", "e": 0.5}
    call = parse({"inputs": [X], "id": None, "outputs": None, "parameters": parameters})
    found = {name: plain(value) for name, value in call.message.parameters.items()}
    assert found == {
        "a": {"bool_param": True},
        "b": {"int64_param": -5},
        "c": {"uint64_param": 2**63},
        "d": {"string_param": "text"},
        "e": {"double_param": 0.5},
    }
    assert call.message.id == ""


def test_outputs_are_binary_as_they_say_and_else_as_the_request_says() -> None:
    outputs = [
        {"name": "a", "parameters": {"binary_data": False}},
        {"name": "b", "parameters": {"binary_data": True, "classification": 3}},
        {"name": "c"},
        {"name": "d", "parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}},
    ]
    call = parse({"inputs": [X], "outputs": outputs, "parameters": {"binary_data_output": True}})
    assert [call.delivery.is_binary_of(name) for name in "abc"] == [False, True, True]
    assert call.delivery.in_memory == {"d"}
    assert not call.message.parameters
    by_name = {output.name: output.parameters for output in call.message.outputs}
    assert by_name["b"]["classification"].int64_param == 3
    assert by_name["d"]["shared_memory_byte_size"].int64_param == 4
    assert not by_name["a"]
    assert not parse({"inputs": [X]}).delivery.is_binary_of("a")


def raw_interface(*specs: Any, max_batch_size: int = 0) -> ModelInterface:
    return ModelInterface("m", 1, Signature(specs, ()), max_batch_size)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"shared_memory_offset": 2**64 - 32}, "Invalid offset for shared memory region: 'r'"),
        (
            {"shared_memory_byte_size": 2**64 - 32},
            "Integer overflow detected: byte_size (18446744073709551584) + offset (0) exceeds "
            "maximum value (9223372036854775807) for region 'r'",
        ),
    ],
)
@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_a_place_beyond_any_region_is_refused(
    side: str, parameters: dict[str, int], text: str
) -> None:
    tensor: dict[str, Any] = {"name": "x", "datatype": "INT32", "shape": [2]}
    placed = {**tensor, "parameters": {"shared_memory_region": "r", **parameters}}
    content = {"inputs": [placed]} if side == "inputs" else {"inputs": [X], "outputs": [placed]}
    assert refusal(content) == text


def test_a_raw_body_is_the_only_input_s_bytes_and_gives_its_shape() -> None:
    values = np.arange(6, dtype="<f4")
    interface = raw_interface(spec("x", "FP32", 2, -1), max_batch_size=8)
    call = raw_infer(values.tobytes(), "", interface)
    assert call.delivery.is_binary
    (tensor,) = call.message.inputs
    assert list(tensor.shape) == [1, 2, 3]
    arrays, num_rows = parse_inputs(call.message, interface.signature, 8, NO_SHARING)
    assert (arrays["x"].tolist(), num_rows) == ([[[0, 1, 2], [3, 4, 5]]], 1)
    call = raw_infer(b"text", "", raw_interface(spec("x", "BYTES", 1)))
    assert arrays_of(call, spec("x", "BYTES", 1))["x"].tolist() == [b"text"]


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        ((spec("x", "FP32", 1), spec("y", "FP32", 1)), "Raw request must only have 1 input"),
        ((spec("x", "FP32", -1, -1),), "there are more than one variable-sized dimension"),
        ((spec("x", "BYTES", 2),), "the model must have input shape [1]"),
        ((spec("x", "BYTES", -1),), "the model must have input shape [1]"),
    ],
)
def test_a_raw_body_for_a_model_of_another_kind_is_refused(specs: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        raw_infer(bytes(8), "", raw_interface(*specs))
    assert str(caught.value).startswith("[request id: <id_unknown>] ")
    assert text in str(caught.value)


ANY_BODY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["inputs", "outputs", "parameters", "name", "datatype", "shape", "data", "id",
             "binary_data_size", "shared_memory_region", "classification"]
        ),
        inner,
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(ANY_BODY, st.binary(max_size=20))
def test_any_json_gives_a_message_or_a_refusal(content: Any, binary: bytes) -> None:
    with suppress(InvalidArgument):
        parse(content, binary)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_give_a_message_or_a_refusal(body: bytes, length: int) -> None:
    with suppress(InvalidArgument):
        parse_infer(body, min(length, len(body)), "m", "")


@given(
    st.sampled_from(["INT8", "UINT64", "FP16", "FP32", "BOOL"]).flatmap(
        lambda name: hnp.arrays(DATATYPES[name].dtype, hnp.array_shapes(max_dims=3, max_side=3))
    ),
    st.integers(0, 7),
)
def test_binary_arrays_of_any_kind_come_through(array: np.ndarray, pad: int) -> None:
    name = next(each.name for each in DATATYPES.values() if each.dtype == array.dtype)
    tensor: dict[str, Any] = {"name": "x", "datatype": name, "shape": list(array.shape)}
    tensor["parameters"] = {"binary_data_size": array.nbytes}
    call = parse({"inputs": [tensor]}, array.tobytes(), pad=pad)
    arrays = arrays_of(call, spec("x", name, *array.shape))
    assert arrays["x"].tobytes() == array.tobytes()
    assert arrays["x"].shape == array.shape
