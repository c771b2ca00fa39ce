"""The gRPC port: the services, health and reflection on one `grpc.aio` server."""

import asyncio
import socket
import time
from collections.abc import Collection

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from service.api.access import ADMIN_METHODS
from service.api.admission import Admission
from service.api.calls import Calls
from service.api.operations import INFERENCE, Operations
from service.api.services import OWN_SERVICES, REFLECTION_SERVICES
from service.errors import LoadError
from service.rpc.authentication import Authentication
from service.rpc.binding import services
from service.rpc.credentials import server_credentials, watched_certificate
from service.rpc.health import HealthService
from service.rpc.interceptor import Door
from service.rpc.ports import keep_port
from service.rpc.reflection import add_reflection
from service.settings import Settings, join_address

PROBE_ROOM = 1_024  # calls beyond `max_concurrent_rpcs`, for probes and for refusals
HANDSHAKE_TIMEOUT_S = 20.0  # for TLS and HTTP/2 together, then a silent connection is cut
END_STREAMS_S = 0.5  # for streams to hear why they end
QUIET_S = 0.05  # without a new call, before the ports are closed
MAX_QUIET_WAIT_S = 0.2
MAX_WHOLE_WAIT_S = 2.0  # for calls that came before the server began to leave
TELL_S = 0.03  # for accepted calls to be counted among those inside
MAX_METADATA_BYTES = 16 * 2**10  # of one call
SERVICES: tuple[str, ...] = (
    INFERENCE.full_name,
    *OWN_SERVICES,
    health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
    *REFLECTION_SERVICES,
)


class RpcServer:
    """Keeps its ports from the beginning, and listens once it starts; health is set separately."""

    def __init__(
        self,
        settings: Settings,
        operations: Operations,
        admission: Admission,
        calls: Calls,
        *,
        is_shared: bool = False,
    ) -> None:
        """With `is_shared` other processes may have the same ports."""
        self.health = HealthService(SERVICES)
        self._settings = settings
        self._admission = admission
        self._calls = calls
        self._authentication = Authentication(settings, admission.refusals)
        self._services = tuple(services(operations, settings.send_timeout_s))
        self._certificate = watched_certificate(settings)
        self._doors: list[Door] = []
        self._servers: list[grpc.aio.Server] = []
        self._kept: list[tuple[socket.socket, str]] = []  # of each server, until it listens
        self._is_started = False
        self._is_shared = is_shared
        self._leaving: list[asyncio.Task[None]] = []
        has_admin = settings.admin_port >= 0
        moved = ADMIN_METHODS if has_admin else ()
        kept = keep_port(
            settings.host,
            settings.grpc_port,
            "gRPC",
            ("--host", "--grpc-port"),
            is_shared=is_shared,
        )
        self.port = self._add(settings.host, kept, moved)
        self.admin_port = None
        if has_admin:
            flags = ("--admin-host", "--admin-port")
            host, port = settings.admin_host, settings.admin_port
            kept = keep_port(host, port, "administration", flags, is_shared=is_shared)
            self.admin_port = self._add(settings.admin_host, kept)

    def _add(self, host: str, kept: socket.socket, elsewhere: Collection[str] = ()) -> int:
        """Another port with all services, but for methods that are answered elsewhere."""
        settings, authentication = self._settings, self._authentication
        server = grpc.aio.server(
            interceptors=[authentication] if authentication.has_rules else [],
            options=server_options(settings, is_shared=self._is_shared),
            maximum_concurrent_rpcs=settings.max_concurrent_rpcs + PROBE_ROOM,
        )
        door = Door(server, settings, self._admission, self._calls, elsewhere)
        door.add_generic_rpc_handlers(self._services)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, door)
        add_reflection(SERVICES, door)
        self._doors.append(door)
        self._servers.append(server)
        port = int(kept.getsockname()[1])
        self._kept.append((kept, join_address(host, port)))
        return port

    def _listen(self, server: grpc.aio.Server, address: str) -> None:
        try:
            if self._certificate is None:
                server.add_insecure_port(address)
                return
            is_mutual = bool(self._settings.tls_client_ca)
            credentials = server_credentials(self._certificate, wants_clients_certificate=is_mutual)
            server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise LoadError(f"cannot listen on {address} for gRPC: {error}") from error

    @property
    def certificate_ends_s(self) -> float | None:
        """When the certificate in use ends, seconds since 1970; None where the port is plain."""
        return None if self._certificate is None else self._certificate.value.ends_s

    @property
    def num_calls(self) -> int:
        """Calls in flight, open streams included and probes left out."""
        return sum(door.num_calls for door in self._doors)

    @property
    def num_begun(self) -> int:
        """Calls since the start, probes left out."""
        return sum(door.num_begun for door in self._doors)

    async def start(self) -> None:
        """Listen. Raises `LoadError`."""
        for server, (kept, address) in zip(self._servers, self._kept, strict=True):
            self._listen(server, address)
            kept.close()
            await server.start()
        self._is_started = True

    async def until_answered(self) -> None:
        """Wait a moment for calls that send their answer and status as one.

        gRPC closes an ending connection as soon as its last status is handed to the kernel, and
        what a slow network has not taken of a long answer by then may be lost. Calls that come
        while the server is leaving send them apart.
        """
        most_s = min(MAX_WHOLE_WAIT_S, self._settings.drain_timeout_s / 2)
        await self._admission.whole_calls.wait_empty(most_s)
        await asyncio.sleep(max(door.linger_s for door in self._doors))

    async def leave(self) -> None:
        """Close the ports and tell clients to connect elsewhere; the calls inside go on.

        A call that comes between gRPC's decision to close and the moment at which its client hears
        of it is cut off by gRPC (CANCELLED). So are those that wait for their turn to be looked at.
        Therefore answers are held meanwhile, as they make clients ask again, and a moment is waited
        for in which no call comes.
        """
        with self._admission.holding():
            await self._until_quiet()
            grace_s = self._settings.drain_timeout_s + END_STREAMS_S
            self._leaving = [asyncio.create_task(server.stop(grace_s)) for server in self._open]
            await asyncio.sleep(TELL_S)

    @property
    def _open(self) -> list[grpc.aio.Server]:
        return self._servers if self._is_started else []

    async def _until_quiet(self) -> None:
        until_s = time.monotonic() + MAX_QUIET_WAIT_S
        num_entered = -1
        while num_entered < (now := self._num_entered) and time.monotonic() < until_s:
            num_entered = now
            await asyncio.sleep(QUIET_S)

    @property
    def _num_entered(self) -> int:
        return sum(door.num_entered for door in self._doors)

    async def stop(self) -> None:
        """Close the ports, end open streams, and cancel what is left after a moment."""
        self.health.end()
        for kept, _ in self._kept:
            kept.close()
        ending = (server.stop(END_STREAMS_S) for server in self._open)
        await asyncio.gather(*ending, *self._leaving)


def server_options(settings: Settings, *, is_shared: bool = False) -> list[tuple[str, int]]:
    """The options for gRPC's core, which ignores unknown names."""
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.per_message_decompression", 0),  # `api/wire.py` does it, within the bound of sizes
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", settings.max_connections),
        ("grpc.max_concurrent_streams", settings.max_streams_per_connection),
        ("grpc.server_handshake_timeout_ms", _ms(HANDSHAKE_TIMEOUT_S)),
        ("grpc.max_connection_age_ms", _ms(settings.max_connection_age_s)),
        ("grpc.max_connection_age_grace_ms", _ms(settings.connection_grace_s)),
        ("grpc.keepalive_time_ms", _ms(settings.keepalive_time_s)),
        ("grpc.keepalive_timeout_ms", _ms(settings.keepalive_timeout_s)),
        ("grpc.http2.ping_timeout_ms", _ms(settings.keepalive_timeout_s)),  # else 60 s
        ("grpc.keepalive_permit_without_calls", 1),  # by clients and, idle too, to them
        ("grpc.http2.max_pings_without_data", 0),  # any number of ours
        ("grpc.http2.min_ping_interval_without_data_ms", _ms(settings.min_ping_interval_s)),
        ("grpc.so_reuseport", int(is_shared)),  # else a second server on the port is a mistake
    ]


def _ms(duration_s: float) -> int:
    return round(duration_s * 1e3)
