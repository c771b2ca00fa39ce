"""`grpc.health.v1.Health`: of each model by its name, and of the server under no name.

The server's health has more names: `readiness`, and those of its gRPC services, by which proxies
and many probes ask. `liveness` is whether the process is sound, also while it loads and drains.
Models of these names have no health of their own.

In place of grpcio-health-checking's own asyncio servicer, which stops telling the other
watchers of a name once one of them has left. Lives on the event loop.
"""

import asyncio
from collections.abc import Callable, Iterable

from grpc import StatusCode
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from service.api.calls import details
from service.errors import NotFound
from service.rpc.status import Context

OVERALL = ""  # the name under which clients ask for the whole server
READINESS = "readiness"
LIVENESS = "liveness"
REASON_KEY = "attendant-reason-bin"  # of trailing metadata; `attendant healthcheck` shows it
MAX_REASON_BYTES = 2_000
_SERVING = pb.HealthCheckResponse.SERVING
_NOT_SERVING = pb.HealthCheckResponse.NOT_SERVING
_UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


class HealthService(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """Status of a service, NOT_SERVING until it is set; after `refuse`, permanently."""

    def __init__(self, services: Iterable[str] = ()) -> None:
        self._of_server = (OVERALL, READINESS, *services)
        self._status = dict.fromkeys(self._of_server, _NOT_SERVING) | {LIVENESS: _SERVING}
        self._is_refusing = False
        self._is_over = False
        self._changed = asyncio.Event()  # set and replaced at every change
        self.reason_of: Callable[[str], str] = lambda _: ""  # why a name is not SERVING

    def set_model(self, name: str, *, is_serving: bool) -> None:
        if name != LIVENESS and not self.is_of_server(name):
            self._set(name, is_serving and not self._is_refusing)

    def is_of_server(self, name: str) -> bool:
        """Whether the health under that name is the server's."""
        return name in self._of_server

    def set_overall(self, *, is_serving: bool) -> None:
        for name in self._of_server:
            self._set(name, is_serving and not self._is_refusing)

    def set_live(self, *, is_live: bool) -> None:
        self._set(LIVENESS, is_live)

    def refuse(self) -> None:
        """NOT_SERVING for everything but liveness, whatever is set later."""
        self._is_refusing = True
        for name in self._status:
            if name != LIVENESS:
                self._set(name, is_serving=False)

    def _set(self, name: str, is_serving: bool) -> None:
        self._status[name] = _SERVING if is_serving else _NOT_SERVING
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        """Tell watchers no more."""
        self._is_over = True
        self._changed.set()

    async def Check(
        self, request: pb.HealthCheckRequest, context: Context
    ) -> pb.HealthCheckResponse:
        if request.service not in self._status:
            error = NotFound(f"unknown service '{request.service}'")
            await context.abort(StatusCode.NOT_FOUND, details(error))
        status = self._status[request.service]
        if status == _NOT_SERVING:
            reason = self.reason_of(request.service).encode()[:MAX_REASON_BYTES]
            context.set_trailing_metadata(((REASON_KEY, reason),))
        return pb.HealthCheckResponse(status=status)

    async def Watch(self, request: pb.HealthCheckRequest, context: Context) -> None:
        """The status now and whenever it differs from what was said last."""
        said = None
        while True:
            changed, is_over = (
                self._changed,
                self._is_over,
            )  # both may change while a message is sent
            status = self._status.get(request.service, _UNKNOWN)
            if status != said:
                await context.write(pb.HealthCheckResponse(status=status))
                said = status
            if is_over:
                return
            await changed.wait()
