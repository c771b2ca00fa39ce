"""The shared memory extensions: the six calls, and the parameters that place tensors in regions.

There is no CUDA memory to share: calls for it get the answers of a Triton built without CUDA.
"""

from tritonclient.grpc import service_pb2 as pb

from service.api.regions import SharedMemoryRegions
from service.errors import InvalidArgument, NotFound
from service.serving.model import Caller


class SharedMemoryCalls:
    """The six methods; `_regions` is the class's that inherits them."""

    _regions: SharedMemoryRegions

    async def SystemSharedMemoryStatus(
        self, request: pb.SystemSharedMemoryStatusRequest, caller: Caller
    ) -> pb.SystemSharedMemoryStatusResponse:
        response = pb.SystemSharedMemoryStatusResponse()
        for region in self._regions.status(request.name):
            status = response.regions[region.name]
            status.name, status.key = region.name, region.key
            status.offset, status.byte_size = region.offset, region.byte_size
        return response

    async def SystemSharedMemoryRegister(
        self, request: pb.SystemSharedMemoryRegisterRequest, caller: Caller
    ) -> pb.SystemSharedMemoryRegisterResponse:
        self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return pb.SystemSharedMemoryRegisterResponse()

    async def SystemSharedMemoryUnregister(
        self, request: pb.SystemSharedMemoryUnregisterRequest, caller: Caller
    ) -> pb.SystemSharedMemoryUnregisterResponse:
        self._regions.unregister(request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    async def CudaSharedMemoryStatus(
        self, request: pb.CudaSharedMemoryStatusRequest, caller: Caller
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

    async def CudaSharedMemoryRegister(
        self, request: pb.CudaSharedMemoryRegisterRequest, caller: Caller
    ) -> pb.CudaSharedMemoryRegisterResponse:
        raise InvalidArgument(
            f"failed to register shared memory region: '{request.name}', invalid args: no GPUs here"
        )

    async def CudaSharedMemoryUnregister(
        self, request: pb.CudaSharedMemoryUnregisterRequest, caller: Caller
    ) -> pb.CudaSharedMemoryUnregisterResponse:
        self._regions.check_allowed()
        return pb.CudaSharedMemoryUnregisterResponse()
