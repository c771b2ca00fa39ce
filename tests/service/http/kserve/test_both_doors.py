"""The same request by gRPC and by HTTP: the same answer, or the same refusal."""

import json
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from tests.fakes.kserve import HEADER_LENGTH, ask_infer, outputs_of
from tests.fakes.refusals import INVALID, NAMES, set_parameter
from tests.fakes.serving import Served, inference, refusal, simple_request, text_request
from tests.fakes.streams import prompt_request

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"http_port": 0}
# Cases that a message can express and a body of HTTP cannot: contents beside raw ones, no contents,
# and fields of another type than the tensor's.
ONLY_MESSAGES = (
    "raw and contents",
    "fewer raw entries than inputs",
    "no data",
    "typed field of another type",
    "two typed fields",
    "typed size",
    "contents present but empty",
    "classes as an unsigned number",  # JSON has one kind of whole numbers
    "classes without a value",
    "mine {'uint64_param': 1}",
    "mine {}",
    "datatype BYTES",
)
CASES = sorted(INVALID.keys() - {*ONLY_MESSAGES})
# In JSON these types are refused before their shape and their names are looked at.
BINARY_CASES = ("datatype BF16", "raw size")


async def test_every_case_that_only_messages_can_express_is_known() -> None:
    assert set(ONLY_MESSAGES) <= INVALID.keys()


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("case", CASES)
async def test_a_request_that_can_never_succeed_is_refused_in_the_same_words(
    served: Served, case: str, is_binary: bool
) -> None:
    if case in BINARY_CASES and not is_binary:
        pytest.skip("JSON cannot express it")
    change, text = INVALID[case]
    request = simple_request()
    change(request)
    code, details = await refusal(served.inference.ModelInfer(request))
    assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, text)
    answer = await ask_infer(served, request, is_binary=is_binary)
    assert (answer.status, answer.json) == (400, {"error": text})
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(("name", "version", "code", "text"), NAMES)
async def test_a_model_that_is_not_there_is_refused_in_the_same_words(
    served: Served, name: str, version: str, code: str, text: str
) -> None:
    if not name:
        return  # a path has one
    request = simple_request()
    request.model_name, request.model_version = name, version
    answer = await ask_infer(served, request, is_binary=True)
    status = {"NOT_FOUND": 404, "INVALID_ARGUMENT": 400}[code]
    assert (answer.status, answer.json) == (status, {"error": text})


REQUESTS: dict[str, pb.ModelInferRequest] = {
    "numbers": simple_request(3),
    "strings": inference("strings", IN=("a", "é😀", "")),
    "text": text_request("spam", "lunch", "spam spam"),
    "embedding": text_request("mini", "lunch"),
    "generation": prompt_request("once upon", stream=None),
}


@pytest.mark.parametrize("is_binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("case", REQUESTS)
async def test_both_answer_the_same_tensors(served: Served, case: str, is_binary: bool) -> None:
    request = pb.ModelInferRequest()
    request.CopyFrom(REQUESTS[case])
    request.id = "seven"
    response = await served.inference.ModelInfer(request)
    if not request.raw_input_contents:
        _to_raw(request)
    answer = await ask_infer(served, request, is_binary=is_binary)
    assert answer.status == 200, answer.body
    length = answer.headers.get(HEADER_LENGTH)
    found = outputs_of(answer.body, length)
    content = json.loads(answer.body[: int(length)]) if length else answer.json
    assert (content["id"], content["model_name"], content["model_version"]) == (
        "seven", response.model_name, response.model_version,
    )  # fmt: skip
    assert list(found) == [output.name for output in response.outputs]
    for output, written, raw in zip(
        response.outputs, content["outputs"], response.raw_output_contents, strict=True
    ):
        assert (written["datatype"], written["shape"]) == (output.datatype, list(output.shape))
        assert _raw_of(found[output.name], output.datatype) == raw


def _to_raw(request: pb.ModelInferRequest) -> None:
    """Strings in typed contents become raw ones."""
    for tensor in request.inputs:
        raw = b"".join(
            len(text).to_bytes(4, "little") + text for text in tensor.contents.bytes_contents
        )
        tensor.ClearField("contents")
        request.raw_input_contents.append(raw)


def _raw_of(found: Any, datatype: str) -> bytes:
    if isinstance(found, bytes):
        return found
    if datatype == "BYTES":
        texts = [text.encode() for text in found]
        return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    kinds = {"INT32": "<i4", "FP32": "<f4"}
    return np.array(found, kinds[datatype]).tobytes()


async def test_a_timeout_and_a_priority_are_taken(served: Served) -> None:
    request = simple_request()
    set_parameter("timeout", {"int64_param": 10_000_000})(request)
    set_parameter("priority", {"int64_param": 1})(request)
    answer = await ask_infer(served, request, is_binary=True)
    assert answer.status == 200
