"""`grpc.health.v1.Health`: of each model by its name, and of the server under no name.

In place of grpcio-health-checking's own asyncio servicer, which stops telling the other
watchers of a name once one of them has left. Lives on the event loop.
"""

import asyncio
from typing import Any

from grpc import StatusCode
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from service.rpc.status import Context

OVERALL = ""  # the name under which clients ask for the whole server
_SERVING = pb.HealthCheckResponse.SERVING
_NOT_SERVING = pb.HealthCheckResponse.NOT_SERVING
_UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """NOT_SERVING until told otherwise; after `refuse`, for good."""

    def __init__(self) -> None:
        self._status = {OVERALL: _NOT_SERVING}
        self._is_refusing = False
        self._changed = asyncio.Event()  # set and replaced at every change

    def set(self, name: str, *, is_serving: bool) -> None:
        """What is said of one model, or of the server as a whole."""
        is_healthy = is_serving and not self._is_refusing
        self._status[name] = _SERVING if is_healthy else _NOT_SERVING
        self._changed.set()
        self._changed = asyncio.Event()

    def refuse(self) -> None:
        """NOT_SERVING for everything, whatever is set later."""
        self._is_refusing = True
        for name in self._status:
            self.set(name, is_serving=False)

    async def Check(self, request: Any, context: Context) -> Any:  # noqa: ANN401
        if request.service not in self._status:
            await context.abort(StatusCode.NOT_FOUND, f"unknown service '{request.service}'")
        return pb.HealthCheckResponse(status=self._status[request.service])

    async def Watch(self, request: Any, context: Context) -> None:  # noqa: ANN401
        """The status now and whenever it differs from what was said last."""
        said = None
        while True:
            changed = self._changed
            status = self._status.get(request.service, _UNKNOWN)
            if status != said:
                await context.write(pb.HealthCheckResponse(status=status))
                said = status
            await changed.wait()
