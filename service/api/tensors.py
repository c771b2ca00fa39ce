"""`ModelInfer` messages to arrays, with Triton's checks in Triton's order.

Clients match on these texts, so they are Triton's to the letter; docs/reference/triton.md
lists them. Knows nothing of models beyond their name, tensors and batch size.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from tritonclient.grpc import service_pb2

from service.api.classification import check_classes, class_count
from service.api.regions import Place, SharedMemoryRegions, Transfer, place_of
from service.contract.tensors import (
    BYTES,
    DATATYPES,
    Datatype,
    Signature,
    TensorSpec,
    strings_from_raw,
)
from service.errors import InvalidArgument

InputTensor: TypeAlias = service_pb2.ModelInferRequest.InferInputTensor
OutputTensor: TypeAlias = service_pb2.ModelInferRequest.InferRequestedOutputTensor
# Raw; of a long message; a typed BYTES tensor; in shared memory.
Payload: TypeAlias = bytes | memoryview | list[bytes] | Place
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
    model, tensors = request.model_name, list(request.inputs)
    names = [tensor.name for tensor in tensors]
    outputs = list(request.outputs)
    _refuse_duplicates("input", names)
    _refuse_duplicates("output", [output.name for output in outputs])
    payloads = _payloads(request, tensors, transfer)
    if outputs:
        _check_outputs(model, outputs, signature, transfer.regions)
    specs = {spec.name: spec for spec in signature.inputs}
    try:
        num_rows = _check_batch(model, tensors, names, signature, max_batch_size)
        arrays = {
            name: _to_array(
                tensor, payload, specs[name], model, max_batch_size, transfer.max_strings
            )
            for name, tensor, payload in zip(names, tensors, payloads, strict=True)
        }
    except InvalidArgument as error:
        raise in_request(request, str(error)) from error
    return arrays, num_rows


def in_request(request: service_pb2.ModelInferRequest, text: str) -> InvalidArgument:
    """An error of what is checked against the model: it names the request."""
    return InvalidArgument(f"[request id: {request.id or '<id_unknown>'}] {text}")


def _refuse_duplicates(side: str, names: Sequence[str]) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidArgument(f"{side} '{name}' already exists in request")
        seen.add(name)


def _payloads(
    request: service_pb2.ModelInferRequest, tensors: Sequence[InputTensor], transfer: Transfer
) -> list[Payload]:
    """Each input's data; raw ones belong in order to the inputs outside shared memory."""
    contents = request.raw_input_contents
    raw, has_raw = iter(contents), bool(contents)
    payloads: list[Payload] = []
    for tensor in tensors:
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
        payloads.append(payload)
    num_shared = sum([place.byte_size for place in payloads if isinstance(place, Place)])
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
    model: str,
    outputs: Sequence[OutputTensor],
    signature: Signature,
    regions: SharedMemoryRegions,
) -> None:
    """Check the requested outputs: their parameters first, then their names."""
    counts: dict[str, int | None] = {}
    for output in outputs:
        place = place_of(output, regions)
        counts[output.name] = class_count(output)
        if place is not None and counts[output.name] is not None:
            raise InvalidArgument(
                "output can't set both 'shared_memory_region' and 'classification'"
            )
    datatypes = {spec.name: spec.datatype for spec in signature.outputs}
    for name, count in counts.items():
        if name not in datatypes:
            raise InvalidArgument(f"unexpected inference output '{name}' for model '{model}'")
        if count is not None:
            check_classes(datatypes[name])


def _check_batch(
    model: str,
    tensors: Sequence[InputTensor],
    names: Sequence[str],
    signature: Signature,
    max_batch_size: int,
) -> int:
    """The inputs are the model's, and agree on a batch size within the limit."""
    expected = [spec.name for spec in signature.inputs]
    if names != expected:
        _check_count(model, names, signature)
    num_rows = 1
    for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        if name not in expected:
            raise InvalidArgument(f"unexpected inference input '{name}' for model '{model}'")
        if not max_batch_size:
            continue
        shape = tensor.shape
        if not shape:
            raise InvalidArgument(
                f"input '{name}' has no shape but model requires batch dimension for '{model}'"
            )
        if index and shape[0] != num_rows:
            raise InvalidArgument(
                f"input '{name}' batch size does not match other inputs for '{model}'"
            )
        num_rows = shape[0]
    if max_batch_size and num_rows > max_batch_size:
        raise InvalidArgument(
            f"inference request batch-size must be <= {max_batch_size} for '{model}'"
        )
    return num_rows


def _check_count(model: str, names: Sequence[str], signature: Signature) -> None:
    """Check the number of inputs, and that no required one is missing."""
    required = [spec.name for spec in signature.inputs if not spec.is_optional]
    missing = [name for name in required if name not in names]
    most = len(signature.inputs)
    is_wrong = not len(required) <= len(names) <= most
    # Where all are needed, one of another name in its place is refused by that name further on.
    if not is_wrong and not (missing and len(required) < most):
        return
    if len(required) == most:
        expected = f"expected {most} inputs"
    else:
        expected = f"expected number of inputs between {len(required)} and {most}"
    raise InvalidArgument(
        f"{expected} but got {len(names)} inputs for model '{model}'. "
        f"Got input(s) {_quoted(sorted(names))}, but missing required input(s) "
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
    if min(shape, default=0) < 0:
        if -1 in shape:
            raise InvalidArgument(
                f"All input dimensions should be specified for input '{name}' for model "
                f"'{model}', got {_written(shape)}"
            )
        raise InvalidArgument(f"tensor '{name}' contains an invalid dimension {_written(shape)}")
    expected = ((-1,) if max_batch_size else ()) + spec.dims
    fits = len(shape) == len(expected) and not [
        dim for want, dim in zip(expected, shape, strict=True) if want not in (-1, dim)
    ]
    if not fits:
        raise InvalidArgument(
            f"unexpected shape for input '{name}' for model '{model}'. Expected "
            f"{_written(expected)}, got {_written(shape)}. {_SHAPE_NOTE if max_batch_size else ''}"
        )
    # Also of a tensor without elements: NumPy takes no such shape.
    if math.prod([dim for dim in shape if dim]) * spec.datatype.dtype.itemsize > MAX_BYTES:
        raise InvalidArgument(f"byte size for tensor '{name}' exceeds maximum size of {MAX_BYTES}")


def _strings(payload: Payload, count: int, name: str, model: str) -> np.ndarray:
    if isinstance(payload, Place):
        payload = payload.read()
    if isinstance(payload, bytes | memoryview):
        elements = strings_from_raw(bytes(payload), count, name, model)
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
    payload: bytes | memoryview | Place, count: int, datatype: Datatype, name: str, model: str
) -> np.ndarray:
    expected = count * datatype.dtype.itemsize
    num_bytes = payload.byte_size if isinstance(payload, Place) else len(payload)
    if num_bytes != expected:
        raise InvalidArgument(
            f"input byte size mismatch for input '{name}' for model '{model}'. "
            f"Expected {expected}, got {num_bytes}"
        )
    raw = payload.read() if isinstance(payload, Place) else payload
    return np.frombuffer(raw, datatype.dtype)


def _quoted(names: list[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


def _written(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
