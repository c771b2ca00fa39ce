"""Round trips with the parts of Triton's own client that write requests and read answers."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tritonclient.grpc import service_pb2 as pb

from service.api.tensors import parse_inputs
from service.contract.tensors import DATATYPES, Signature, to_raw
from service.http.kserve.request import Delivery, parse_infer
from service.http.kserve.response import write_infer
from service.http.wire.compression import compressed
from tests.fakes.serving import NO_SHARING
from tests.fakes.sessions import spec

pytest.importorskip("geventhttpclient", reason="tritonclient[http] is not installed")
from tritonclient.http import InferInput, InferRequestedOutput, InferResult
from tritonclient.http._utils import _get_inference_request

SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)


def arrays_of(name: str) -> st.SearchStrategy[np.ndarray]:
    """Arrays as the client takes them; strings may be any bytes where they go binary."""
    if name == "BYTES":
        texts = st.text(max_size=5).map(str.encode)
        return hnp.arrays(np.dtype("O"), SHAPES, elements=texts)
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "BF16" else DATATYPES[name].dtype
    bits = hnp.arrays(np.dtype(f"u{dtype.itemsize}"), SHAPES)
    if name == "BOOL":
        return hnp.arrays(np.dtype(bool), SHAPES)
    if name not in ("FP32", "FP64"):
        return bits.map(lambda array: array.view(dtype))
    return hnp.arrays(
        dtype, SHAPES, elements=hnp.from_dtype(dtype, allow_nan=False, allow_infinity=False)
    )


@st.composite
def tensors(draw: Any) -> tuple[str, np.ndarray, bool]:
    """A type, an array of it, and whether it goes binary."""
    name = draw(st.sampled_from(sorted(DATATYPES)))
    is_binary = name in ("FP16", "BF16") or draw(st.booleans())
    return name, draw(arrays_of(name)), is_binary


def same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype == object:
        return list(one.ravel()) == list(other.ravel())
    return one.tobytes() == other.tobytes()


@given(st.lists(tensors(), max_size=4), st.booleans())
def test_requests_of_the_client_are_read(inputs: list[Any], has_outputs: bool) -> None:
    written = []
    for index, (name, array, is_binary) in enumerate(inputs):
        tensor = InferInput(f"x{index}", list(array.shape), name)
        written.append(tensor.set_data_from_numpy(array, binary_data=is_binary))
    outputs = [InferRequestedOutput("y", binary_data=False, class_count=2)] if has_outputs else None
    body, header_length = _get_inference_request(
        written, "seven", outputs, 0, False, False, 3, 5, {"custom": 1.5}
    )
    call = parse_infer(body, len(body) if header_length is None else header_length, "m", "")
    specs = [spec(f"x{index}", name, *array.shape) for index, (name, array, _) in enumerate(inputs)]
    arrays, _ = parse_inputs(
        call.message, Signature(tuple(specs), (spec("y", "FP32", 1),)), 0, NO_SHARING
    )
    for index, (_, array, _) in enumerate(inputs):
        assert same(arrays[f"x{index}"], array)
    assert call.message.id == "seven"
    parameters = call.message.parameters
    assert (parameters["priority"].int64_param, parameters["timeout"].int64_param) == (3, 5)
    assert parameters["custom"].double_param == 1.5
    assert call.delivery.is_binary_of("y") is not has_outputs


@given(st.lists(tensors(), max_size=4), st.sampled_from(["identity", "gzip", "deflate"]))
def test_the_client_reads_the_answers(outputs: list[Any], encoding: str) -> None:
    response = pb.ModelInferResponse(model_name="m", model_version="1")
    choices = {}
    for index, (name, array, is_binary) in enumerate(outputs):
        response.outputs.add(name=f"y{index}", datatype=name, shape=array.shape)
        response.raw_output_contents.append(to_raw(array))
        choices[f"y{index}"] = is_binary
    answer = write_infer(response, Delivery(choices=choices))
    buffers = list(answer.buffers)
    if encoding != "identity":
        buffers = list(compressed(buffers, encoding))
    result = InferResult.from_response_body(
        b"".join(buffers),
        header_length=answer.header_length,
        content_encoding=None if encoding == "identity" else encoding,
    )
    for index, (name, array, is_binary) in enumerate(outputs):
        found = result.as_numpy(f"y{index}")
        if name == "BYTES" and not is_binary:
            found = np.array([text.encode() for text in found.ravel()], object).reshape(found.shape)
        assert same(found, array)
