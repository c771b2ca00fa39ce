"""`ModelInfer` messages to arrays, with Triton's checks in Triton's order.

Clients match on these texts, so they are Triton's to the letter; docs/protocol.md
lists them. Knows nothing of models beyond their name, tensors and batch size.
"""

import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from tritonclient.grpc import service_pb2

from service.datatypes import BYTES, DATATYPES, Datatype, strings_from_raw
from service.errors import InvalidArgument
from service.model_config import Signature, TensorSpec
from service.rpc.classification import check_classes, class_count
from service.rpc.shared_memory import Transfer, place_of
from service.shared_memory import Place, SharedMemoryRegions

InputTensor: TypeAlias = service_pb2.ModelInferRequest.InferInputTensor
Payload: TypeAlias = bytes | list[bytes] | Place  # raw; a typed BYTES tensor; in shared memory
MAX_BYTES = 2**63 - 1
MAX_SHOWN_DIMS = 64  # of a shape, which may have as many as a message holds: others are left out
_FIELD_DATATYPE = {
    "bool_contents": "BOOL",
    "int_contents": "INT32",
    "int64_contents": "INT64",
    "uint_contents": "UINT32",
    "uint64_contents": "UINT64",
    "fp32_contents": "FP32",
    "fp64_contents": "FP64",
    "bytes_contents": BYTES,
}
_SHAPE_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to each input shape. If you want to specify the full shape including the batch dim "
    "in your input dims config, try setting max_batch_size to zero. See the model configuration "
    "docs for more info on max_batch_size."
)


def parse_inputs(
    request: service_pb2.ModelInferRequest,
    signature: Signature,
    max_batch_size: int,
    transfer: Transfer,
) -> tuple[dict[str, np.ndarray], int]:
    """The inputs by name and the number of rows, or an error that says what is wrong.

    Arrays have the full shape of the request; raw ones are read-only views of its bytes, and those
    of shared memory are copies.
    """
    model = request.model_name
    _refuse_duplicates("input", request.inputs)
    _refuse_duplicates("output", request.outputs)
    payloads = _payloads(request, transfer)
    _check_outputs(request, signature, transfer.regions)
    try:
        num_rows = _check_batch(request, signature, max_batch_size)
        specs = {spec.name: spec for spec in signature.inputs}
        limits = max_batch_size, transfer.max_strings
        arrays = {
            tensor.name: _to_array(
                tensor, payloads[tensor.name], specs[tensor.name], model, *limits
            )
            for tensor in request.inputs
        }
    except InvalidArgument as error:
        raise in_request(request, str(error)) from error
    return arrays, num_rows


def in_request(request: service_pb2.ModelInferRequest, text: str) -> InvalidArgument:
    """An error of what is checked against the model: it names the request."""
    return InvalidArgument(f"[request id: {request.id or '<id_unknown>'}] {text}")


def _refuse_duplicates(side: str, tensors: Iterable[InputTensor]) -> None:
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise InvalidArgument(f"{side} '{tensor.name}' already exists in request")
        seen.add(tensor.name)


def _payloads(request: service_pb2.ModelInferRequest, transfer: Transfer) -> dict[str, Payload]:
    """Each input's data; raw ones belong in order to the inputs outside shared memory."""
    raw = iter(request.raw_input_contents)
    has_raw = bool(request.raw_input_contents)
    payloads: dict[str, Payload] = {}
    for tensor in request.inputs:
        payload: Payload | None = place_of(tensor, transfer.regions)
        if payload is not None and tensor.HasField("contents"):
            raise InvalidArgument(
                "unexpected 'content' provided when using shared memory for input tensor "
                f"'{tensor.name}' for model '{request.model_name}'"
            )
        if payload is None and tensor.HasField("contents"):
            payload = _typed_payload(tensor, has_raw, request.model_name)
        if payload is None:
            payload = next(raw, None)
        if payload is None:
            raise InvalidArgument(
                f"unable to find data for input tensor '{tensor.name}' for model "
                f"'{request.model_name}' in request."
            )
        payloads[tensor.name] = payload
    num_shared = sum(place.byte_size for place in payloads.values() if isinstance(place, Place))
    if num_shared > transfer.max_message_bytes:
        raise InvalidArgument(
            f"inputs in shared memory have {num_shared} bytes, "
            f"the server takes at most {transfer.max_message_bytes} in one request"
        )
    return payloads


def _typed_payload(tensor: InputTensor, is_also_raw: bool, model: str) -> bytes | list[bytes]:
    if is_also_raw:
        raise InvalidArgument(
            "contents field must not be specified when using raw_input_contents for "
            f"'{tensor.name}' for model '{model}'"
        )
    fields = tensor.contents.ListFields()
    prefix = f"unexpected explicit tensor data for input tensor '{tensor.name}' for model '{model}'"
    if len(fields) > 1:
        raise InvalidArgument(f"{prefix}, binary data was already supplied.")
    datatype = DATATYPES.get(tensor.datatype)
    if not fields or datatype is None:  # the datatype is refused by name further on
        return b""
    field, values = fields[0]
    if field.name != datatype.contents_field:
        raise InvalidArgument(
            f"{prefix} of type '{_FIELD_DATATYPE[field.name]}', "
            f"expected datatype '{tensor.datatype}'"
        )
    if datatype.name == BYTES:
        return list(values)
    # Wide first: narrow integers are truncated as Triton does, not refused.
    wide = np.fromiter(values, DATATYPES[_FIELD_DATATYPE[field.name]].dtype, len(values))
    return wide.astype(datatype.dtype).tobytes()


def _check_outputs(
    request: service_pb2.ModelInferRequest, signature: Signature, regions: SharedMemoryRegions
) -> None:
    """What is asked of outputs can be done: by their parameters first, then by their names."""
    counts = {}
    for output in request.outputs:
        place = place_of(output, regions)
        counts[output.name] = class_count(output)
        if place is not None and counts[output.name] is not None:
            raise InvalidArgument(
                "output can't set both 'shared_memory_region' and 'classification'"
            )
    datatypes = {spec.name: spec.datatype for spec in signature.outputs}
    for name, count in counts.items():
        if name not in datatypes:
            raise InvalidArgument(
                f"unexpected inference output '{name}' for model '{request.model_name}'"
            )
        if count is not None:
            check_classes(datatypes[name])


def _check_batch(
    request: service_pb2.ModelInferRequest, signature: Signature, max_batch_size: int
) -> int:
    """The inputs are the model's, and agree on a batch size within the limit."""
    model = request.model_name
    expected = [spec.name for spec in signature.inputs]
    _check_count(request, signature)
    num_rows = 1
    for index, tensor in enumerate(request.inputs):
        if tensor.name not in expected:
            raise InvalidArgument(f"unexpected inference input '{tensor.name}' for model '{model}'")
        if not max_batch_size:
            continue
        if not tensor.shape:
            raise InvalidArgument(
                f"input '{tensor.name}' has no shape but model requires batch dimension "
                f"for '{model}'"
            )
        if index and tensor.shape[0] != num_rows:
            raise InvalidArgument(
                f"input '{tensor.name}' batch size does not match other inputs for '{model}'"
            )
        num_rows = tensor.shape[0]
    if max_batch_size and num_rows > max_batch_size:
        raise InvalidArgument(
            f"inference request batch-size must be <= {max_batch_size} for '{model}'"
        )
    return num_rows


def _check_count(request: service_pb2.ModelInferRequest, signature: Signature) -> None:
    """As many inputs as there may be, and none missing that the model needs."""
    given = [tensor.name for tensor in request.inputs]
    required = [spec.name for spec in signature.inputs if not spec.is_optional]
    missing = [name for name in required if name not in given]
    most = len(signature.inputs)
    is_wrong = not len(required) <= len(given) <= most
    # Where all are needed, one of another name in its place is refused by that name further on.
    if not is_wrong and not (missing and len(required) < most):
        return
    if len(required) == most:
        expected = f"expected {most} inputs"
    else:
        expected = f"expected number of inputs between {len(required)} and {most}"
    raise InvalidArgument(
        f"{expected} but got {len(given)} inputs for model '{request.model_name}'. "
        f"Got input(s) {_quoted(sorted(given))}, but missing required input(s) "
        f"{_quoted(missing)}. Please provide all required input(s)."
    )


def _to_array(
    tensor: InputTensor,
    payload: Payload,
    spec: TensorSpec,
    model: str,
    max_batch_size: int,
    max_strings: int,
) -> np.ndarray:
    name, shape = tensor.name, tuple(tensor.shape[:MAX_SHOWN_DIMS])
    if tensor.datatype != spec.datatype.name:
        stated = tensor.datatype if tensor.datatype in DATATYPES else "<invalid>"
        raise InvalidArgument(
            f"inference input '{name}' data-type is '{stated}', "
            f"but model '{model}' expects '{spec.datatype.name}'"
        )
    _check_shape(name, shape, spec, model, max_batch_size)
    count = math.prod(shape)
    if spec.datatype.name == BYTES:
        if count > max_strings:
            raise InvalidArgument(
                f"inference input '{name}' for model '{model}' has {count} strings, the server "
                f"takes at most {max_strings}"
            )
        return _strings(payload, count, name, model).reshape(shape)
    assert not isinstance(payload, list)
    return _numbers(payload, count, spec.datatype, name, model).reshape(shape)


def _check_shape(
    name: str, shape: tuple[int, ...], spec: TensorSpec, model: str, max_batch_size: int
) -> None:
    written = _written(shape)
    if -1 in shape:
        raise InvalidArgument(
            f"All input dimensions should be specified for input '{name}' for model '{model}', "
            f"got {written}"
        )
    if any(dim < 0 for dim in shape):
        raise InvalidArgument(f"tensor '{name}' contains an invalid dimension {written}")
    expected = ((-1,) if max_batch_size else ()) + spec.dims
    fits = len(shape) == len(expected) and all(
        want in (-1, dim) for want, dim in zip(expected, shape, strict=True)
    )
    if not fits:
        raise InvalidArgument(
            f"unexpected shape for input '{name}' for model '{model}'. Expected "
            f"{_written(expected)}, got {written}. {_SHAPE_NOTE if max_batch_size else ''}"
        )
    # Also of a tensor without elements: NumPy takes no such shape.
    if math.prod(filter(None, shape)) * spec.datatype.dtype.itemsize > MAX_BYTES:
        raise InvalidArgument(f"byte size for tensor '{name}' exceeds maximum size of {MAX_BYTES}")


def _strings(payload: Payload, count: int, name: str, model: str) -> np.ndarray:
    if isinstance(payload, Place):
        payload = payload.read()
    if isinstance(payload, bytes):
        elements = strings_from_raw(payload, count, name, model)
    elif len(payload) < count:
        raise InvalidArgument(
            f"expected {count} string elements for inference input '{name}' for model '{model}', "
            f"got {len(payload)}"
        )
    elif len(payload) > count:
        raise InvalidArgument(
            f"unexpected number of string elements {len(payload)} for inference input '{name}' "
            f"for model '{model}', expecting {count}"
        )
    else:
        elements = payload
    array = np.empty(count, object)
    array[:] = elements
    return array


def _numbers(
    payload: bytes | Place, count: int, datatype: Datatype, name: str, model: str
) -> np.ndarray:
    expected = count * datatype.dtype.itemsize
    given = payload.byte_size if isinstance(payload, Place) else len(payload)
    if given != expected:
        raise InvalidArgument(
            f"input byte size mismatch for input '{name}' for model '{model}'. "
            f"Expected {expected}, got {given}"
        )
    raw = payload.read() if isinstance(payload, Place) else payload
    return np.frombuffer(raw, datatype.dtype)


def _quoted(names: list[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


def _written(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
