"""Answers of infer calls as bodies."""

import json
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from service.api.long_message import LongInferResponse
from service.contract.tensors import to_raw
from service.errors import InvalidArgument
from service.http.kserve.request import Delivery
from service.http.kserve.response import write_infer

X = np.array([[1, 2], [3, 4]], "<i4")


def response_of(request_id: str = "", **arrays: tuple[str, np.ndarray]) -> pb.ModelInferResponse:
    response = pb.ModelInferResponse(model_name="m", model_version="3", id=request_id)
    for name, (datatype, array) in arrays.items():
        response.outputs.add(name=name, datatype=datatype, shape=array.shape)
        response.raw_output_contents.append(to_raw(array))
    return response


def json_of(response: Any, delivery: Delivery) -> Any:
    answer = write_infer(response, delivery)
    return json.loads(bytes(answer.buffers[0]))


def test_json_outputs_are_flat_and_have_no_parameters() -> None:
    answer = write_infer(response_of(x=("INT32", X)), Delivery())
    assert (answer.header_length, answer.content_type) == (None, "application/json")
    (body,) = answer.buffers
    assert json.loads(bytes(body)) == {
        "model_name": "m",
        "model_version": "3",
        "outputs": [{"name": "x", "datatype": "INT32", "shape": [2, 2], "data": [1, 2, 3, 4]}],
    }


def test_id_and_parameters_are_those_of_the_answer_without_grpc_s_own() -> None:
    response = response_of("seven")
    response.parameters["triton_final_response"].bool_param = True
    response.parameters["score"].double_param = 0.5
    content = json_of(response, Delivery())
    assert (content["id"], content["parameters"]) == ("seven", {"score": 0.5})
    assert content["outputs"] == []


def test_binary_outputs_follow_the_json_in_their_order() -> None:
    empty = np.zeros((0, 2), "<f4")
    response = response_of(x=("INT32", X), y=("FP32", empty), z=("BYTES", np.array([b"q"], object)))
    answer = write_infer(response, Delivery(choices={"x": True, "y": True}))
    header, *blobs = map(bytes, answer.buffers)
    assert (answer.header_length, answer.content_type) == (len(header), "application/octet-stream")
    assert blobs == [X.tobytes()]
    outputs = json.loads(header)["outputs"]
    assert [output.get("parameters") for output in outputs] == [
        {"binary_data_size": 16},
        {"binary_data_size": 0},
        None,
    ]
    assert outputs[2]["data"] == ["q"]


def test_long_binary_outputs_are_not_copied() -> None:
    array = np.zeros(2**20, np.uint8)
    head = pb.ModelInferResponse(model_name="m")
    head.outputs.add(name="x", datatype="UINT8", shape=[2**20])
    answer = write_infer(LongInferResponse(head, [array]), Delivery(is_binary=True))
    assert np.shares_memory(np.frombuffer(answer.buffers[1], np.uint8), array)


def test_an_output_in_shared_memory_has_neither_data_nor_parameters() -> None:
    response = response_of(x=("INT32", X))
    response.raw_output_contents[0] = b""
    (output,) = json_of(response, Delivery(in_memory=frozenset(["x"])))["outputs"]
    assert output == {"name": "x", "datatype": "INT32", "shape": [2, 2]}


def test_half_precision_is_answered_binary_or_refused() -> None:
    response = response_of(x=("FP16", np.ones(2, "<f2")))
    with pytest.raises(InvalidArgument, match="sending FP16 data via JSON is not supported"):
        write_infer(response, Delivery())
    answer = write_infer(response, Delivery(is_binary=True))
    assert bytes(answer.buffers[1]) == np.ones(2, "<f2").tobytes()
