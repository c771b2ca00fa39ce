"""The body of an infer request as the protocol's message, for `service/api` to check and answer.

    {JSON: names, types, shapes, parameters, data}{bytes of input 1}{bytes of input 2}...
     <-- Inference-Header-Content-Length -->       <- binary_data_size ->

Without that header the whole body is JSON; where it is 0, all of it is the only input's bytes. Only
the form is checked here. Binary tensors stay where they are in the body. Pure, for any thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from tritonclient.grpc import service_pb2 as pb

from service.api.classification import PARAMETER as CLASSES
from service.api.infer import MAX_PARAMETERS
from service.api.long_message import Content, LongInferRequest
from service.api.regions import REGION, Tensor
from service.contract.tensors import BYTES, DATATYPES
from service.errors import InvalidArgument
from service.http.kserve.json_data import read_data
from service.http.wire.compression import Buffer
from service.http.wire.json_faults import of_record
from service.http.wire.json_parts import counted

T = TypeVar("T")
HEADER_LENGTH = "Inference-Header-Content-Length"
BINARY_SIZE = "binary_data_size"
_BINARY = "binary_data"
_BINARY_OUTPUT = "binary_data_output"
_OFFSET, _BYTE_SIZE = "shared_memory_offset", "shared_memory_byte_size"
MAX_SHAPE_BYTES = 4_096  # of a shape's JSON
_INT64 = range(-(2**63), 2**63)
SHAPE = {
    "type": "array",
    "items": {"type": "integer", "minimum": _INT64[0], "maximum": _INT64[-1]},
}
_UINT64 = range(2**64)
Parameters: TypeAlias = dict[str, bool | int | float | str | None]
# Lists in a parameter are never built: they would take twenty times their bytes, and be refused.
Unread: TypeAlias = dict[str, Raw]


class Input(Struct):
    """One element of `inputs`."""

    name: str
    datatype: str
    shape: Annotated[Raw, Meta(extra_json_schema=SHAPE)]  # its length is checked before it is built
    data: Raw | UnsetType = UNSET
    parameters: Unread | None = None


class Output(Struct):
    """One element of `outputs`."""

    name: str
    parameters: Unread | None = None


class InferBody(Struct):
    """The JSON of a request; what it has beyond these fields is ignored, and null is absent."""

    inputs: list[Input]
    id: str | None = None
    outputs: list[Output] | None = None
    parameters: Unread | None = None


_BODY = msgspec.json.Decoder(InferBody)
_SHAPE = msgspec.json.Decoder(list[Annotated[int, Meta(ge=_INT64[0], le=_INT64[-1])]])
_VALUE = msgspec.json.Decoder(bool | int | float | str | None)


@dataclass(frozen=True, slots=True)
class Delivery:
    """The form in which a client wants the outputs: binary, or JSON."""

    is_binary: bool = False  # what has no choice of its own
    choices: Mapping[str, bool] = field(default_factory=dict)
    in_memory: frozenset[str] = frozenset()  # outputs in shared memory, of which nothing is sent

    def is_binary_of(self, name: str) -> bool:
        return self.choices.get(name, self.is_binary)


@dataclass(frozen=True, slots=True)
class InferCall:
    """A request's message, and the form of its answer."""

    message: LongInferRequest
    delivery: Delivery


def header_length_of(value: str | None, num_bytes: int) -> int:
    """The length of a body's JSON, by its header. Raises `InvalidArgument`."""
    if value is None:
        return num_bytes
    if not (value.isascii() and value.isdigit() and len(value) < 20):
        raise InvalidArgument(f"Unable to parse {HEADER_LENGTH}, got: {value}")
    if int(value) > num_bytes:
        raise InvalidArgument(
            f"inference header size should be in range (0, {num_bytes}), got: {value}"
        )
    return int(value)


def parse_infer(
    body: Buffer, header_length: int, model: str, version: str, max_parts: int = 2**17
) -> InferCall:
    """The request of a body that begins with a JSON header. Raises `InvalidArgument`."""
    view = memoryview(body).toreadonly()
    if header_length > max_parts:  # else it has fewer parts than bytes
        check_parts(view[:header_length], max_parts)
    content = decode_json(_BODY, view[:header_length])
    message = pb.ModelInferRequest(model_name=model, model_version=version, id=content.id or "")
    check_count(len(content.parameters or ()))
    parameters = read_parameters(content.parameters)
    is_binary = _flag(parameters.pop(_BINARY_OUTPUT, False), _BINARY_OUTPUT)
    for name, value in parameters.items():
        set_parameter(message.parameters[name], name, value)
    contents = _add_inputs(message, content.inputs, view[header_length:])
    delivery = _add_outputs(message, content.outputs or (), is_binary=is_binary)
    return InferCall(LongInferRequest(message, contents), delivery)


def check_parts(text: Buffer, max_parts: int) -> None:
    """Refuse JSON with more objects, lists and texts than a message may have fields.

    Numbers are counted by their bytes: those of tensors are read a piece at a time.
    """
    parts = counted(text, 3 * max_parts, are_numbers_free=True)
    for name, count, most in (
        ("objects and lists", parts.num_containers, max_parts),
        ("texts, names included,", parts.num_texts, 2 * max_parts),
    ):
        if count > most:
            raise InvalidArgument(
                f"the request's JSON has more than {most} {name}, as --max-message-parts has it: "
                "send tensors flat, or binary"
            )


def decode_json(decoder: msgspec.json.Decoder[T], text: Buffer, of: str = "") -> T:
    """The decoded JSON of a body, or of the field `of` it. Raises `InvalidArgument`."""
    try:
        return decoder.decode(memoryview(text))
    except msgspec.ValidationError as error:
        fault = of_record(error, of)
        raise InvalidArgument(
            f"the request's JSON is not as expected: {fault.text}", fault.field
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"failed to parse the request JSON buffer: {error}") from error
    except RecursionError:
        raise InvalidArgument("the request's JSON has too many lists inside each other") from None


def check_count(num_parameters: int) -> None:
    """Raise `InvalidArgument` for more parameters than a request may have."""
    if num_parameters > MAX_PARAMETERS:
        raise InvalidArgument(
            f"the request has {num_parameters} parameters, the server takes at most "
            f"{MAX_PARAMETERS}"
        )


def read_parameters(parameters: Mapping[str, Raw] | None) -> Parameters:
    """The values by name. Raises `InvalidArgument` for lists and objects."""
    values: Parameters = {}
    for name, value in (parameters or {}).items():
        if bytes(memoryview(value)[:1]) in (b"[", b"{"):
            raise _wrong_type(name)
        values[name] = decode_json(_VALUE, value, name)
    return values


def set_parameter(parameter: pb.InferParameter, name: str, value: object) -> None:
    """Give a parameter its value. Raises `InvalidArgument` for one that is none."""
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, str):
        parameter.string_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    elif isinstance(value, int) and value in _INT64:
        parameter.int64_param = value
    elif isinstance(value, int) and value in _UINT64:
        parameter.uint64_param = value
    else:
        raise _wrong_type(name)


def _wrong_type(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
    )


def _add_inputs(
    message: pb.ModelInferRequest, inputs: Sequence[Input], binary: memoryview
) -> list[Content]:
    """Add the inputs; the contents of those that are not in shared memory, in their order."""
    contents: list[Content] = []
    for place, each in enumerate(inputs):
        parameters = read_parameters(each.parameters)
        shape = _shape_of(each.shape, f"inputs[{place}].shape")
        _check_source(each.data is not UNSET, parameters)
        tensor = message.inputs.add(name=each.name, datatype=each.datatype, shape=shape)
        if each.data is not UNSET:
            assert isinstance(each.data, Raw)
            contents.append(read_data(each.data, each.datatype, each.name))
        elif BINARY_SIZE in parameters:
            size = _size(parameters[BINARY_SIZE])
            if size > len(binary):
                raise InvalidArgument(
                    f"unexpected size for input '{each.name}', expecting {size - len(binary)} "
                    f"additional bytes for model '{message.model_name}'"
                )
            contents.append(aligned(binary[:size], each.datatype))
            binary = binary[size:]
        _set_place(tensor, parameters)
    if len(binary):
        raise InvalidArgument(
            f"unexpected additional input data for model '{message.model_name}': "
            f"{len(binary)} bytes follow those of the inputs"
        )
    return contents


def _shape_of(raw: Raw, name: str) -> list[int]:
    """The dimensions. Raises `InvalidArgument`."""
    if len(memoryview(raw)) > MAX_SHAPE_BYTES:
        raise InvalidArgument(f"{name} has more dimensions than any tensor has", name)
    shape: list[int] = decode_json(_SHAPE, raw, name)
    return shape


def _check_source(has_data: bool, parameters: Parameters) -> None:
    """Refuse an input whose values come from no source, or from several."""
    sources = ["data"] if has_data else []
    sources += [name for name in (BINARY_SIZE, REGION) if name in parameters]
    chosen = [f"'{name}'" for name in sources]
    if len(chosen) != 1:
        raise InvalidArgument(
            "Input must set only one of the following fields: 'data', 'binary_data_size' in "
            "'parameters', 'shared_memory_region' in 'parameters'. But "
            + (f"set {' '.join(chosen)}" if chosen else "no field is set")
        )


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(f"Unable to parse '{BINARY_SIZE}': expected a number of bytes")
    return value


def aligned(view: memoryview, datatype_name: str) -> memoryview:
    """The bytes, copied where they do not begin at a multiple of their items' size.

    By NumPy, which lets other threads run meanwhile.
    """
    datatype = DATATYPES.get(datatype_name)
    if datatype is None or datatype.name == BYTES or not len(view):
        return view
    array = np.frombuffer(view, np.uint8)
    address: int = array.ctypes.data
    return view if address % datatype.dtype.itemsize == 0 else array.copy().data


def _add_outputs(
    message: pb.ModelInferRequest, outputs: Sequence[Output], *, is_binary: bool
) -> Delivery:
    choices: dict[str, bool] = {}
    in_memory: set[str] = set()
    for each in outputs:
        output = message.outputs.add(name=each.name)
        parameters = read_parameters(each.parameters)
        if _BINARY in parameters:
            choices[each.name] = _flag(parameters[_BINARY], _BINARY)
        if CLASSES in parameters:
            set_parameter(output.parameters[CLASSES], CLASSES, parameters[CLASSES])
        _set_place(output, parameters)
        if REGION in parameters:
            in_memory.add(each.name)
            if choices.get(each.name):
                raise InvalidArgument(
                    "Output can't set both 'shared_memory_region' and 'binary_data'"
                )
    return Delivery(is_binary, choices, frozenset(in_memory))


def _set_place(tensor: Tensor, parameters: Parameters) -> None:
    """Add a tensor's place in shared memory. Raises `InvalidArgument` for one beyond any region."""
    region, offset, size = (parameters.get(name, 0) for name in (REGION, _OFFSET, _BYTE_SIZE))
    if isinstance(offset, int) and offset > _INT64[-1]:
        raise InvalidArgument(f"Invalid offset for shared memory region: '{region}'")
    if isinstance(size, int) and size > _INT64[-1]:
        raise InvalidArgument(
            f"Integer overflow detected: byte_size ({size}) + offset ({offset}) exceeds maximum "
            f"value ({_INT64[-1]}) for region '{region}'"
        )
    for name in (REGION, _OFFSET, _BYTE_SIZE):
        if name in parameters:
            set_parameter(tensor.parameters[name], name, parameters[name])


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidArgument(f"Unable to parse '{name}': expected true or false")
    return value
