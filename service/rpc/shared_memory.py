"""The shared memory extensions: the six calls, and the parameters that place tensors in regions.

There is no CUDA memory to share: calls for it get the answers of a Triton built without CUDA.
"""

from tritonclient.grpc import service_pb2 as pb

from service.api.regions import SharedMemoryRegions
from service.errors import InvalidArgument, NotFound
from service.rpc.status import INFERENCE_CODES, Context, answers_errors


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
