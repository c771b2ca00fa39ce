"""A `ModelInfer` message to a model's request, including its parameters.

Shared by the unary method and the stream. The checks and their texts are Triton's.
"""

from collections.abc import Iterator
from dataclasses import replace

from tritonclient.grpc import service_pb2 as pb

from service.errors import InvalidArgument
from service.models import Caller, InferRequest, ServedModel
from service.rpc.shared_memory import Transfer
from service.rpc.tensors import in_request, parse_inputs

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
