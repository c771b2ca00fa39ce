"""The generate extension: a request's keys are the names of inputs, or of parameters.

A value is a number, a string or a list of them; the shape is found from the model's. Pure, for any
thread.
"""

import math
from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Raw
from tritonclient.grpc import service_pb2 as pb

from service.api.long_message import Content, LongInferRequest
from service.contract.interface import ModelInterface
from service.contract.tensors import BYTES, TensorSpec
from service.errors import InvalidArgument
from service.http.kserve.json_data import read_data, write_data
from service.http.kserve.request import (
    check_count,
    check_parts,
    decode_json,
    read_parameters,
    set_parameter,
)
from service.http.kserve.response import Response, described, parameters_of
from service.http.wire.compression import Buffer

_NESTED = "parameters"
_FIELDS = msgspec.json.Decoder(dict[str, Raw])
_ID = msgspec.json.Decoder(str)


def parse_generate(
    body: Buffer, version: str, interface: ModelInterface, max_parts: int = 2**17
) -> LongInferRequest:
    """The request of a body for a model. Raises `InvalidArgument`."""
    if len(body) > max_parts:
        check_parts(body, max_parts)
    fields: dict[str, Raw] = decode_json(_FIELDS, memoryview(body).toreadonly())
    inputs = {spec.name: spec for spec in interface.signature.inputs}
    request_id = decode_json(_ID, fields.pop("id"), "id") if "id" in fields else ""
    message = pb.ModelInferRequest(model_name=interface.name, model_version=version, id=request_id)
    contents: list[Content] = []
    flattened = list(_flattened(fields, inputs))
    check_count(len(flattened) - len(inputs))
    for name, value in flattened:
        if name not in inputs:
            (read,) = read_parameters({name: value}).values()
            set_parameter(message.parameters[name], name, read)
            continue
        content, shape = _tensor(value, inputs[name], has_rows=interface.has_rows)
        contents.append(content)
        message.inputs.add(name=name, datatype=inputs[name].datatype.name, shape=shape)
    return LongInferRequest(message, contents)


def _flattened(
    fields: Mapping[str, Raw], inputs: Mapping[str, TensorSpec]
) -> Iterator[tuple[str, Raw]]:
    """The fields, and those of `parameters` in its place."""
    for name, value in fields.items():
        if name != _NESTED:
            yield name, value
        elif name in inputs:
            raise InvalidArgument(
                f"Keyword '{name}' for nested schema also given as input tensor name"
            )
        else:
            yield from decode_json(_FIELDS, value, name).items()


def _tensor(
    value: Raw, spec: TensorSpec, *, has_rows: bool
) -> tuple[bytes | list[bytes], list[int]]:
    text = bytes(value).strip()
    listed = Raw(text if text.startswith(b"[") else b"[" + text + b"]")
    content = read_data(listed, spec.datatype.name, spec.name)
    count = len(content)
    if spec.datatype.name != BYTES:
        count //= spec.datatype.dtype.itemsize
    return content, _shape(count, [-1] * has_rows + list(spec.dims), spec.name)


def _shape(count: int, dims: list[int], name: str) -> list[int]:
    """The dims with the last free one as large as the values need, and others 1."""
    num_fixed = math.prod(dim for dim in dims if dim != -1)
    is_exact = num_fixed and count % num_fixed == 0
    if not is_exact or (-1 not in dims and count != num_fixed):
        raise InvalidArgument(
            f"The schema can not convert input '{name}' to tensor with proper shape"
        )
    shape = [1 if dim == -1 else dim for dim in dims]
    if -1 in dims:
        last_free = len(dims) - 1 - dims[::-1].index(-1)
        shape[last_free] = count // num_fixed
    return shape


def write_generated(response: Response) -> bytes:
    """An answer as one object, where an output of one element is that element.

    Raises `InvalidArgument` for values that JSON has no form for.
    """
    values = described(response)
    values.pop(_NESTED, None)
    values |= parameters_of(response)
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        count = math.prod(output.shape)
        data = write_data(memoryview(raw), output.datatype, count, output.name)
        values[output.name] = Raw(data[1:-1] if count == 1 else data)
    return msgspec.json.encode(values)
