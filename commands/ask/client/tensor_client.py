"""A small client of the Open Inference Protocol: nested lists in, arrays out.

Datatypes come from the model's metadata, shapes from how the lists are nested.
"""

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from commands.ask.client.client import Client
from service.contract.tensors import BYTES, DATATYPES, strings_from_raw, to_raw
from service.errors import InvalidArgument

OPERATIONS = "/inference.GRPCInferenceService/"
JSON_TYPES = {
    bool: "boolean",
    int: "number",
    float: "number",
    type(None): "null",
    list: "list",
    dict: "object",
}


class InferenceClient(Client):
    """Asks any model for tensors."""

    def infer(self, model: str, version: str, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Every output by name, for inputs as nested lists."""
        name = pb.ModelMetadataRequest(name=model, version=version)
        metadata = self.call(f"{OPERATIONS}ModelMetadata", pb.ModelMetadataResponse, name)
        datatypes = {tensor.name: tensor.datatype for tensor in metadata.inputs}
        request = pb.ModelInferRequest(model_name=model, model_version=version)
        for name, value in values.items():
            if name not in datatypes:
                raise InvalidArgument(f"--input is '{name}', expected one of {[*datatypes]}")
            array = _array_of(name, value, datatypes[name])
            request.inputs.add(name=name, datatype=datatypes[name], shape=array.shape)
            request.raw_input_contents.append(to_raw(array))
        response = self.call(f"{OPERATIONS}ModelInfer", pb.ModelInferResponse, request)
        raw = zip(response.outputs, response.raw_output_contents, strict=True)
        return {tensor.name: _read(tensor, content, model) for tensor, content in raw}


def _array_of(name: str, value: Any, datatype: str) -> np.ndarray:
    try:
        array = np.array(value, DATATYPES[datatype].dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"--input '{name}' is no {datatype} tensor: {error}") from error
    if datatype == BYTES:
        for element in array.ravel():
            _check_text(name, element)
    return array


def _check_text(name: str, element: Any) -> None:
    """Raises `InvalidArgument` where an element of a BYTES tensor is no string."""
    if not isinstance(element, str):
        raise InvalidArgument(
            f"--input '{name}' has an element of type {JSON_TYPES[type(element)]}, "
            f"{reprlib.repr(element)}, expected strings: its datatype is {BYTES}"
        )
    try:
        element.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"--input '{name}' has a string with half of a surrogate pair, expected Unicode text"
        ) from error


def _read(tensor: Any, content: bytes, model: str) -> np.ndarray:
    shape = tuple(tensor.shape)
    if tensor.datatype != "BYTES":
        return np.frombuffer(content, DATATYPES[tensor.datatype].dtype).reshape(shape)
    texts = strings_from_raw(content, int(np.prod(shape)), tensor.name, model)
    return np.array(texts, object).reshape(shape)


def nested(array: np.ndarray) -> Any:
    """An array as JSON has it; texts that are not UTF-8 with marks in them."""
    if array.dtype != object:
        return array.tolist()
    texts = [element.decode(errors="replace") for element in array.ravel()]
    return np.array(texts, object).reshape(array.shape).tolist()
