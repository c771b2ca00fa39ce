"""The generate extension: keys as inputs or parameters, and answers without lists of one."""

import json
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from service.api.tensors import parse_inputs
from service.contract.interface import ModelInterface
from service.contract.tensors import Signature, to_raw
from service.errors import InvalidArgument
from service.http.kserve.generate import parse_generate, write_generated
from service.http.wire.plain import plain
from tests.fakes.serving import NO_SHARING
from tests.fakes.sessions import spec


def interface_of(*specs: Any, max_batch_size: int = 8) -> ModelInterface:
    return ModelInterface("m", 1, Signature(specs, ()), max_batch_size)


TEXT = interface_of(spec("text_input", "BYTES", 1), spec("stream", "BOOL", 1))


def parse(content: Any, interface: ModelInterface = TEXT) -> Any:
    return parse_generate(json.dumps(content).encode(), "", interface)


def test_keys_that_name_inputs_are_tensors_and_the_others_parameters() -> None:
    message = parse(
        {
            "id": "seven",
            "text_input": "once",
            "temperature": 0.5,
            "parameters": {"stream": True, "max_tokens": 5, "stop": "."},
        }
    )
    arrays, num_rows = parse_inputs(message, TEXT.signature, 8, NO_SHARING)
    assert arrays["text_input"].tolist() == [[b"once"]]
    assert arrays["stream"].tolist() == [[True]]
    assert (num_rows, message.id) == (1, "seven")
    assert {name: plain(value) for name, value in message.parameters.items()} == {
        "temperature": {"double_param": 0.5},
        "max_tokens": {"int64_param": 5},
        "stop": {"string_param": "."},
    }


@pytest.mark.parametrize(
    ("dims", "max_batch_size", "value", "shape"),
    [
        ((1,), 8, 5, [1, 1]),
        ((1,), 8, [5], [1, 1]),
        ((1,), 8, [5, 6, 7], [3, 1]),
        ((-1,), 8, [5, 6, 7], [1, 3]),
        ((-1, 2), 0, [1, 2, 3, 4], [2, 2]),
        ((2, -1, -1), 8, [1, 2, 3, 4], [1, 2, 1, 2]),
        ((3,), 0, [1, 2, 3], [3]),
        ((-1,), 0, [], [0]),
    ],
)
def test_the_last_free_dimension_takes_the_values(
    dims: tuple[int, ...], max_batch_size: int, value: Any, shape: list[int]
) -> None:
    message = parse(
        {"x": value}, interface_of(spec("x", "INT32", *dims), max_batch_size=max_batch_size)
    )
    assert list(message.inputs[0].shape) == shape


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"x": [1, 2, 3]}, "The schema can not convert input 'x' to tensor with proper shape"),
        ({"x": "text"}, "Unable to parse 'data' of input 'x': "),
        ({"x": None}, "Unable to parse 'data' of input 'x': "),
        ({"p": {"q": 1}}, "parameter 'p' has invalid type."),
        ({"p": None}, "parameter 'p' has invalid type."),
        ({"parameters": 5}, "the request's JSON is not as expected: parameters is a whole number,"),
        ({"id": 5}, "the request's JSON is not as expected: id is a whole number, expected a text"),
        ([1], "the request's JSON is not as expected: the body is a list, expected an object"),
    ],
)
def test_values_that_fit_no_shape_or_type_are_refused(content: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse(content, interface_of(spec("x", "INT32", 2), max_batch_size=0))
    assert str(caught.value).startswith(text)


def test_an_input_called_parameters_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="Keyword 'parameters' for nested schema"):
        parse({"parameters": {}}, interface_of(spec("parameters", "INT32", 1)))


def test_an_output_of_one_element_is_that_element() -> None:
    response = pb.ModelInferResponse(model_name="m", model_version="1", id="seven")
    response.parameters["triton_final_response"].bool_param = True
    response.parameters["score"].int64_param = 5
    for name, datatype, array in (
        ("text_output", "BYTES", np.array([["a\nb"]], object)),
        ("numbers", "INT32", np.array([1, 2], "<i4")),
        ("none", "FP32", np.zeros(0, "<f4")),
    ):
        response.outputs.add(name=name, datatype=datatype, shape=array.shape)
        response.raw_output_contents.append(to_raw(array))
    assert json.loads(write_generated(response)) == {
        "id": "seven",
        "model_name": "m",
        "model_version": "1",
        "score": 5,
        "text_output": "a\nb",
        "numbers": [1, 2],
        "none": [],
    }


@pytest.mark.parametrize("body", [b'{"text_input": "\xff"}', b'{"other": "\xff"}'])
def test_texts_that_are_not_utf8_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="codec can't decode byte 0xff"):
        parse_generate(body, "", TEXT)
