"""A `ModelInfer` message to a model's request, including its parameters.

Shared by the unary method and the stream. The checks and their texts are Triton's.

A model's outputs to a `ModelInfer` response: raw, as classes, or into shared memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from service.api.classification import class_count, classify
from service.api.long_message import LongInferResponse
from service.api.regions import SharedMemoryRegions, Transfer, place_of
from service.api.tensors import in_request, parse_inputs
from service.contract.tensors import BYTES, to_raw
from service.errors import InvalidArgument, RegionFailed
from service.serving.model import Caller, InferRequest, ServedModel

MAX_PARAMETERS = 1_024  # of one request
EMPTY_FINAL = "triton_enable_empty_final_response"
_TYPES = {
    "timeout": ("int64_param",),
    "priority": ("int64_param", "uint64_param"),
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "truncate": ("bool_param",),  # ours: cut texts that are longer than the model takes
    EMPTY_FINAL: ("bool_param",),
}
_OWN_TYPES = ("int64_param", "bool_param", "string_param", "double_param")


def to_infer_request(
    request: pb.ModelInferRequest,
    model: ServedModel,
    transfer: Transfer,
    caller: Caller,
) -> InferRequest:
    """The checked inputs and parameters, or an error that says what is wrong.

    A priority and a timeout among the parameters are added to what is known of the caller.
    """
    has_parameters = bool(request.parameters)
    if has_parameters:
        _check_parameters(request)
    max_batch_size = model.interface.max_batch_size
    inputs, num_rows = parse_inputs(request, model.signature, max_batch_size, transfer)
    if not has_parameters:
        return InferRequest(inputs, num_rows, caller)
    _refuse_sequence(request)
    return InferRequest(
        inputs=inputs,
        num_rows=num_rows,
        caller=replace(caller, priority=_priority(request), timeout_s=_timeout_s(request)),
        can_truncate=is_set(request, "truncate"),
        parameters=dict(_own_parameters(request)),
    )


def is_set(request: pb.ModelInferRequest, name: str) -> bool:
    """A boolean request parameter; one that is absent is false."""
    return name in request.parameters and request.parameters[name].bool_param


def _check_parameters(request: pb.ModelInferRequest) -> None:
    if len(request.parameters) > MAX_PARAMETERS:
        raise InvalidArgument(
            f"the request has {len(request.parameters)} parameters, the server takes at most "
            f"{MAX_PARAMETERS}"
        )
    for key, value in request.parameters.items():
        if key.startswith("triton_") and key not in _TYPES:
            raise InvalidArgument(
                "parameter keys starting with 'triton_' are reserved for Triton usage. Only the "
                f"following keys starting with 'triton_' are allowed: {EMPTY_FINAL}"
            )
        expected = _TYPES.get(key, _OWN_TYPES)
        if value.WhichOneof("parameter_choice") not in expected:
            if key not in _TYPES:
                expected = ("int64_param, bool_param, or string_param",)
            raise InvalidArgument(
                f"invalid value type for '{key}' parameter, expected {' or '.join(expected)}."
            )


def _priority(request: pb.ModelInferRequest) -> int:
    if "priority" not in request.parameters:
        return 0
    parameter = request.parameters["priority"]
    priority: int = getattr(parameter, parameter.WhichOneof("parameter_choice"))
    if priority < 0:
        raise InvalidArgument("invalid value for 'priority', expected value >= 0.")
    return priority


def _timeout_s(request: pb.ModelInferRequest) -> float | None:
    """Microseconds on the wire; nothing above 0 is none."""
    if "timeout" not in request.parameters:
        return None
    timeout_us: int = request.parameters["timeout"].int64_param
    return timeout_us / 1e6 if timeout_us > 0 else None


def _refuse_sequence(request: pb.ModelInferRequest) -> None:
    """No model here keeps anything from one request for the next."""
    for name in ("sequence_id", "sequence_start", "sequence_end"):
        if name not in request.parameters:
            continue
        parameter = request.parameters[name]
        value = getattr(parameter, parameter.WhichOneof("parameter_choice"))
        if value:
            written = str(value).lower() if isinstance(value, bool) else f"'{value}'"
            raise in_request(
                request,
                f"parameter '{name}' is {written}, but model '{request.model_name}' "
                "is not stateful",
            )


def _own_parameters(
    request: pb.ModelInferRequest,
) -> Iterator[tuple[str, bool | int | float | str]]:
    """The parameters that the protocol leaves to models."""
    for key, value in request.parameters.items():
        if key not in _TYPES:
            yield key, getattr(value, value.WhichOneof("parameter_choice"))


STREAM_BYTES = 64  # at most, that a stream adds to a response: its frame, and one parameter
LONG_BYTES = 2**18  # of outputs; writing them takes so long that another thread does it


def build_response(
    request: pb.ModelInferRequest,
    model: ServedModel,
    outputs: Mapping[str, np.ndarray],
    transfer: Transfer,
) -> pb.ModelInferResponse | LongInferResponse:
    """The requested outputs, in the model's order; the request has been checked.

    Each has its raw entry, which is all that clients read. That of an output in shared memory is
    empty. Regions are looked up again, since they may have been unregistered meanwhile.
    """
    requested = {output.name: output for output in request.outputs}
    response = pb.ModelInferResponse(
        model_name=request.model_name, model_version=str(model.version), id=request.id
    )
    contents: list[bytes | np.ndarray] = []
    for spec in model.signature.outputs:
        name, array, datatype = spec.name, outputs[spec.name], spec.datatype.name
        requested_output = requested.get(name)
        if requested and requested_output is None:
            continue
        if requested_output is None or not requested_output.parameters:
            response.outputs.add(name=name, datatype=datatype, shape=array.shape)
            contents.append(to_raw(array) if array.dtype == object else _bytes_of(array))
            continue
        count = class_count(requested_output)
        if count is not None:
            labels = model.labels.get(name, [])
            has_rows = model.interface.has_rows
            array, datatype = classify(array, count, labels, has_rows=has_rows), BYTES
        response.outputs.add(name=name, datatype=datatype, shape=array.shape)
        contents.append(_deliver(to_raw(array), requested_output, transfer.regions))
    answer = _with_contents(response, contents)
    _check_size(answer, transfer.max_message_bytes)
    return answer


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """The array's bytes, where they are if they are in one piece."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _with_contents(
    response: pb.ModelInferResponse, contents: Sequence[bytes | np.ndarray]
) -> pb.ModelInferResponse | LongInferResponse:
    if sum(map(len, contents)) < LONG_BYTES:
        response.raw_output_contents.extend([bytes(content) for content in contents])
        return response
    return LongInferResponse(response, [np.frombuffer(each, np.uint8) for each in contents])


def _check_size(response: pb.ModelInferResponse | LongInferResponse, max_bytes: int) -> None:
    """Refuse what gRPC would not send, in words that say so."""
    num_bytes = response.ByteSize() + STREAM_BYTES
    if num_bytes > max_bytes:
        raise InvalidArgument(
            f"Response has byte size {num_bytes} which exceeds gRPC's byte size limit {max_bytes}."
        )


def _deliver(
    raw: bytes,
    requested_output: pb.ModelInferRequest.InferRequestedOutputTensor,
    regions: SharedMemoryRegions,
) -> bytes:
    """The part of an output for the message; empty if the output is in shared memory."""
    place = place_of(requested_output, regions)
    if place is None:
        return raw
    if len(raw) > place.byte_size:
        raise RegionFailed(
            f"shared memory size specified with the request for output '{requested_output.name}' "
            f"({place.byte_size} bytes) should be at least {len(raw)} bytes to hold the results"
        )
    place.write(raw)
    return b""
