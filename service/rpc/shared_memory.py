"""The shared memory extensions: the six calls, and the parameters that place tensors in regions.

There is no CUDA memory to share: calls for it get the answers of a Triton built without CUDA.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

from tritonclient.grpc import service_pb2 as pb

from service.errors import InvalidArgument, NotFound
from service.rpc.status import INFERENCE_CODES, Context, answers_errors
from service.shared_memory import Place, SharedMemoryRegions

Tensor: TypeAlias = (
    pb.ModelInferRequest.InferInputTensor | pb.ModelInferRequest.InferRequestedOutputTensor
)
REGION = "shared_memory_region"
_OFFSET = "shared_memory_offset"
_BYTE_SIZE = "shared_memory_byte_size"


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer of a server's tensors: the regions, and their bounds."""

    regions: SharedMemoryRegions
    max_message_bytes: int
    max_strings: int = 2**17  # of one input


def place_of(tensor: Tensor, regions: SharedMemoryRegions) -> Place | None:
    """A tensor's place by its parameters; None if it is in the message."""
    if not tensor.parameters:
        return None
    name = _parameter(tensor, REGION, "string_param")
    offset = _parameter(tensor, _OFFSET, "int64_param")
    byte_size = _parameter(tensor, _BYTE_SIZE, "int64_param")
    if name is None:
        return None
    if byte_size is None:
        raise InvalidArgument(
            f"'{_BYTE_SIZE}' must be specified along with '{REGION}' parameter "
            f"for tensor '{tensor.name}'"
        )
    return regions.place(name, offset or 0, byte_size)


def shared_bytes(request: pb.ModelInferRequest) -> int:
    """The inputs in shared memory, copied; the request has been checked."""
    sizes = [
        tensor.parameters[_BYTE_SIZE].int64_param
        for tensor in request.inputs
        if _BYTE_SIZE in tensor.parameters
    ]
    return sum(sizes)


def _parameter(tensor: Tensor, key: str, kind: str) -> Any:  # noqa: ANN401 - as `kind` says
    if key not in tensor.parameters:
        return None
    if REGION not in tensor.parameters:
        raise InvalidArgument(
            f"'{key}' can not be specified without '{REGION}' parameter for tensor '{tensor.name}'"
        )
    if tensor.parameters[key].WhichOneof("parameter_choice") != kind:
        raise InvalidArgument(
            f"invalid value type for '{key}' parameter for tensor '{tensor.name}', expected {kind}."
        )
    return getattr(tensor.parameters[key], kind)


class SharedMemoryCalls:
    """The six methods; `_regions` is the class's that inherits them."""

    _regions: SharedMemoryRegions

    @answers_errors(INFERENCE_CODES)
    async def SystemSharedMemoryStatus(
        self, request: pb.SystemSharedMemoryStatusRequest, context: Context
    ) -> pb.SystemSharedMemoryStatusResponse:
        response = pb.SystemSharedMemoryStatusResponse()
        for region in self._regions.status(request.name):
            status = response.regions[region.name]
            status.name, status.key = region.name, region.key
            status.offset, status.byte_size = region.offset, region.byte_size
        return response

    @answers_errors(INFERENCE_CODES)
    async def SystemSharedMemoryRegister(
        self, request: pb.SystemSharedMemoryRegisterRequest, context: Context
    ) -> pb.SystemSharedMemoryRegisterResponse:
        self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    @answers_errors(INFERENCE_CODES)
    async def SystemSharedMemoryUnregister(
        self, request: pb.SystemSharedMemoryUnregisterRequest, context: Context
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        self._regions.unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    @answers_errors(INFERENCE_CODES)
    async def CudaSharedMemoryStatus(
        self, request: pb.CudaSharedMemoryStatusRequest, context: Context
    ) -> pb.CudaSharedMemoryStatusResponse:
        name = request.name
        if name and name in self._regions:
            raise NotFound(
                f"The region named '{name}' is registered as system shared memory, "
                "not CUDA shared memory"
            )
        if name:
            raise NotFound(f"Unable to find cuda shared memory region: '{name}'")
        return pb.CudaSharedMemoryStatusResponse()

    @answers_errors(INFERENCE_CODES)
    async def CudaSharedMemoryRegister(
        self, request: pb.CudaSharedMemoryRegisterRequest, context: Context
    ) -> pb.CudaSharedMemoryRegisterResponse:
        raise InvalidArgument(
            f"failed to register shared memory region: '{request.name}', invalid args: no GPUs here"
        )

    @answers_errors(INFERENCE_CODES)
    async def CudaSharedMemoryUnregister(
        self, request: pb.CudaSharedMemoryUnregisterRequest, context: Context
    ) -> pb.CudaSharedMemoryUnregisterResponse:
        self._regions.check_allowed()
        return pb.CudaSharedMemoryUnregisterResponse()
