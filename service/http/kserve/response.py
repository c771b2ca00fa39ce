"""The answer of an infer call as a body: JSON, and after it the outputs that are wanted binary.

Tensors are not copied: the body is a list of buffers. Pure, for any thread.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from tritonclient.grpc import service_pb2 as pb

from service.api.infer_stream import FINAL
from service.api.long_message import LongInferResponse
from service.http.kserve.json_data import write_data
from service.http.kserve.request import BINARY_SIZE, Delivery

Response: TypeAlias = pb.ModelInferResponse | LongInferResponse
JSON, BINARY = "application/json", "application/octet-stream"


@dataclass(frozen=True, slots=True)
class InferAnswer:
    """A body; `header_length` is that of its JSON where bytes follow."""

    buffers: Sequence[bytes | memoryview]
    header_length: int | None

    @property
    def content_type(self) -> str:
        return JSON if self.header_length is None else BINARY


def write_infer(response: Response, delivery: Delivery) -> InferAnswer:
    """The answer in the form that the client wants. Raises `InvalidArgument`."""
    outputs: list[dict[str, Any]] = []
    buffers: list[bytes | memoryview] = []
    has_binary = False
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        shape = list(output.shape)
        written: dict[str, Any] = {
            "name": output.name,
            "datatype": output.datatype,
            "shape": shape,
        }
        view = memoryview(raw)
        if output.name in delivery.in_memory:
            pass
        elif delivery.is_binary_of(output.name):
            has_binary = True
            written["parameters"] = {BINARY_SIZE: len(view)}
            buffers += [view] if len(view) else []
        else:
            data = write_data(view, output.datatype, math.prod(shape), output.name)
            written["data"] = msgspec.Raw(data)
        outputs.append(written)
    header = msgspec.json.encode(described(response) | {"outputs": outputs})
    return InferAnswer([header, *buffers], len(header) if has_binary else None)


def num_data_bytes(response: Response, delivery: Delivery) -> int:
    """The bytes of the tensors that are to be written as JSON."""
    return sum(
        len(raw)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
        if not delivery.is_binary_of(output.name)
    )


def described(response: Response) -> dict[str, Any]:
    """Fields of an answer beside its outputs: the id only where the request had one."""
    values: dict[str, Any] = {"id": response.id} if response.id else {}
    values |= {"model_name": response.model_name, "model_version": response.model_version}
    parameters = parameters_of(response) if response.parameters else {}
    return values | ({"parameters": parameters} if parameters else {})


def parameters_of(response: Response) -> dict[str, Any]:
    """An answer's parameters, without the one that gRPC's streams mark the last answer with."""
    return {
        name: getattr(value, value.WhichOneof("parameter_choice"))
        for name, value in response.parameters.items()
        if name != FINAL
    }
