"""The gRPC port: the three services, health and reflection on one `grpc.aio` server."""

import grpc
from attendant.v1 import generation_pb2, generation_pb2_grpc, text_pb2, text_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from tritonclient.grpc import service_pb2, service_pb2_grpc

from service.errors import LoadError
from service.repository import ModelRepository
from service.rpc.admission import Admission
from service.rpc.generation import GenerationService
from service.rpc.health import HealthService
from service.rpc.inference import InferenceService
from service.rpc.text import TextService
from service.settings import Settings


class RpcServer:
    """Listens as soon as it starts; healthy once told so."""

    def __init__(
        self, settings: Settings, repository: ModelRepository, admission: Admission
    ) -> None:
        self._health = HealthService()
        self._server = grpc.aio.server(
            options=_options(settings), maximum_concurrent_rpcs=settings.max_concurrent_rpcs
        )
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            InferenceService(repository, admission, settings.server_name), self._server
        )
        text_pb2_grpc.add_TextServiceServicer_to_server(
            TextService(repository, admission, settings.max_texts), self._server
        )
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(
            GenerationService(repository, admission), self._server
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(_service_names(), self._server)
        address = f"{settings.host}:{settings.grpc_port}"
        try:
            self.port: int = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise LoadError(f"cannot listen on {address} for gRPC: {error}") from error

    async def start(self) -> None:
        await self._server.start()

    def set_health(self, name: str, *, is_serving: bool) -> None:
        """What `grpc.health.v1` says of one model, or of the server as a whole."""
        self._health.set(name, is_serving=is_serving)

    def refuse_health(self) -> None:
        """NOT_SERVING for everything, for good."""
        self._health.refuse()

    async def stop(self) -> None:
        """Close the port and cancel what is left, open streams included."""
        await self._server.stop(grace=None)


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_connection_age_ms", round(settings.max_connection_age_s * 1e3)),
        ("grpc.max_connection_age_grace_ms", round(settings.connection_grace_s * 1e3)),
        (
            "grpc.http2.min_recv_ping_interval_without_data_ms",
            round(settings.min_ping_interval_s * 1e3),
        ),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.so_reuseport", 0),  # a second server on the port is a mistake, not a share
    ]


def _service_names() -> list[str]:
    return [
        service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name,
        text_pb2.DESCRIPTOR.services_by_name["TextService"].full_name,
        generation_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name,
        health_pb2.DESCRIPTOR.services_by_name["Health"].full_name,
        reflection.SERVICE_NAME,
    ]
