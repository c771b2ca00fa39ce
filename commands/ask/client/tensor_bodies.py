"""Calls of the Open Inference Protocol as HTTP has them: tensors follow the JSON as bytes.

Knows no socket. docs/reference/http.md names the description of the form.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as pb

from commands.ask.client.refusal import CallError

M = TypeVar("M", bound=Message)
HEADER_LENGTH = "inference-header-content-length"
BINARY_SIZE = "binary_data_size"


def inference_body(request: pb.ModelInferRequest) -> tuple[bytes, int]:
    """The body of a request for tensors, and how many of its bytes are JSON."""
    inputs = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.shape),
            "parameters": {BINARY_SIZE: len(content)},
        }
        for tensor, content in zip(request.inputs, request.raw_input_contents, strict=True)
    ]
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return b"".join((header, *request.raw_input_contents)), len(header)


def read_tensors(content: bytes, headers: Mapping[str, str], message: M) -> M:
    """The answer: metadata, or outputs whose bytes follow the JSON. Raises `CallError`."""
    try:
        length = int(headers.get(HEADER_LENGTH, len(content)))
        fields = json.loads(content[:length])
        if isinstance(message, pb.ModelInferResponse):
            _take_contents(message, fields.get("outputs", ()), memoryview(content)[length:])
        return ParseDict(fields, message, ignore_unknown_fields=True)
    except (ValueError, TypeError, KeyError, AttributeError, ParseError) as error:
        text = f"the answer is none of the Open Inference Protocol: {error}"
        raise CallError("UNIMPLEMENTED", text) from error


def _take_contents(message: pb.ModelInferResponse, outputs: Any, rest: memoryview) -> None:
    """Move each output's bytes to where gRPC's message has them."""
    for output in outputs:
        size = output.pop("parameters")[BINARY_SIZE]
        message.raw_output_contents.append(bytes(rest[:size]))
        rest = rest[size:]


def place_of(model: str, version: str) -> str:
    """The path of a model, or of one of its versions."""
    place = f"/v2/models/{quote(model, safe='')}"
    return f"{place}/versions/{quote(version, safe='')}" if version else place
