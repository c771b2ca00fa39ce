"""Messages of the protocol as bodies of HTTP, for tests that send one request to both ports."""

import json
from typing import Any
from urllib.parse import quote

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from service.contract.tensors import DATATYPES, strings_from_raw
from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served

HEADER_LENGTH = "inference-header-content-length"


def infer_path(request: pb.ModelInferRequest) -> str:
    version = f"/versions/{request.model_version}" if request.model_version else ""
    return f"/v2/models/{quote(request.model_name, safe='')}{version}/infer"


def infer_body(request: pb.ModelInferRequest, *, is_binary: bool) -> tuple[bytes, dict[str, str]]:
    """The body and the headers over HTTP of the same request as a message with raw contents."""
    raw = iter(request.raw_input_contents)
    inputs, blobs = [], []
    for tensor in request.inputs:
        parameters = _values(tensor.parameters)
        written = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        if "shared_memory_region" not in parameters:
            content = next(raw)
            if is_binary:
                blobs.append(content)
                parameters["binary_data_size"] = len(content)
            else:
                written["data"] = _data(tensor.datatype, content)
        inputs.append(written | ({"parameters": parameters} if parameters else {}))
    content_json: dict[str, Any] = {"id": request.id, "inputs": inputs}
    parameters = _values(request.parameters)
    content_json["parameters"] = parameters | {"binary_data_output": is_binary}
    if request.outputs:
        content_json["outputs"] = [
            {"name": output.name, "parameters": _values(output.parameters)}
            for output in request.outputs
        ]
    header = json.dumps(content_json).encode()
    headers = {HEADER_LENGTH: str(len(header))} if is_binary else {}
    return b"".join([header, *blobs]), headers


def _values(parameters: Any) -> dict[str, Any]:
    return {
        name: getattr(value, value.WhichOneof("parameter_choice"))
        for name, value in parameters.items()
    }


def _data(datatype: str, raw: bytes) -> list[Any]:
    """The values of a raw tensor; those of an unknown type as numbers of 32 bits."""
    if datatype == "BYTES":
        return [text.decode() for text in _strings(raw)]
    known = DATATYPES.get(datatype, DATATYPES["INT32"])
    values: list[Any] = np.frombuffer(raw, known.dtype).tolist()
    return values


def _strings(raw: bytes) -> list[bytes]:
    """The elements of a BYTES tensor, as many as there are."""
    count, position = 0, 0
    while position < len(raw):
        position += 4 + int.from_bytes(raw[position : position + 4], "little")
        count += 1
    return strings_from_raw(raw, count, "", "")


def outputs_of(body: bytes, header_length: str | None) -> dict[str, Any]:
    """The outputs of an answer by name: their bytes, or their values in JSON."""
    length = len(body) if header_length is None else int(header_length)
    content, rest = json.loads(body[:length]), body[length:]
    found: dict[str, Any] = {}
    for output in content["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            found[output["name"]] = output.get("data")
        else:
            found[output["name"]], rest = rest[:size], rest[size:]
    assert not rest, "bytes are left after those of the outputs"
    return found


async def ask_infer(
    served: Served,
    request: pb.ModelInferRequest,
    *,
    is_binary: bool,
    headers: dict[str, str] | None = None,
) -> Answer:
    """The answer over HTTP to the request of a message."""
    body, own = infer_body(request, is_binary=is_binary)
    return await ask(served, "POST", infer_path(request), body, (own | (headers or {})).items())
