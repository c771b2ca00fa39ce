"""A model's outputs to a `ModelInfer` response: raw, as classes, or into shared memory."""

from collections.abc import Mapping, Sequence

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from service.datatypes import BYTES, to_raw
from service.errors import InvalidArgument, RegionFailed
from service.models import ServedModel
from service.rpc.classification import class_count, classify
from service.rpc.long_message import LongInferResponse
from service.rpc.shared_memory import Transfer, place_of
from service.shared_memory import SharedMemoryRegions

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
    wanted = {output.name: output for output in request.outputs}
    response = pb.ModelInferResponse(
        model_name=request.model_name, model_version=str(model.version), id=request.id
    )
    contents: list[bytes | np.ndarray] = []
    for spec in model.signature.outputs:
        name, array, datatype = spec.name, outputs[spec.name], spec.datatype.name
        asked = wanted.get(name)
        if wanted and asked is None:
            continue
        if asked is None or not asked.parameters:
            response.outputs.add(name=name, datatype=datatype, shape=array.shape)
            contents.append(to_raw(array) if array.dtype == object else _bytes_of(array))
            continue
        count = class_count(asked)
        if count is not None:
            labels = model.labels.get(name, [])
            has_rows = model.interface.has_rows
            array, datatype = classify(array, count, labels, has_rows=has_rows), BYTES
        response.outputs.add(name=name, datatype=datatype, shape=array.shape)
        contents.append(_deliver(to_raw(array), asked, transfer.regions))
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
    asked: pb.ModelInferRequest.InferRequestedOutputTensor,
    regions: SharedMemoryRegions,
) -> bytes:
    """The part of an output for the message; empty if the output is in shared memory."""
    place = place_of(asked, regions)
    if place is None:
        return raw
    if len(raw) > place.byte_size:
        raise RegionFailed(
            f"shared memory size specified with the request for output '{asked.name}' "
            f"({place.byte_size} bytes) should be at least {len(raw)} bytes to hold the results"
        )
    place.write(raw)
    return b""
