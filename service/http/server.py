"""The HTTP port: its sockets and connections, and how they end. On the event loop of gRPC."""

import asyncio
import socket

from service.api.access import ADMIN_METHODS
from service.api.admission import Admission
from service.api.calls import Calls
from service.api.operations import Operations
from service.errors import LoadError
from service.http.agents.messages import message_routes
from service.http.agents.responses import response_routes
from service.http.batches.routes import batch_routes
from service.http.batches.runner import LineAnswer, Runner
from service.http.batches.store import Store
from service.http.front import Front
from service.http.health import ServerState, health_routes
from service.http.huggingface.routes import inference_routes
from service.http.kserve.metadata import metadata_routes
from service.http.kserve.routes import protocol_routes
from service.http.openai.adapters import adapter_routes
from service.http.openai.chat import chat_routes
from service.http.openai.completions import completion_routes
from service.http.openai.embeddings import embedding_routes
from service.http.openai.tokens import token_routes
from service.http.openapi import openapi_routes
from service.http.page import page_routes
from service.http.retrieval.cohere import cohere_routes
from service.http.retrieval.pooling import pooling_routes
from service.http.retrieval.predict import predict_routes
from service.http.retrieval.reranking import reranking_routes
from service.http.retrieval.scores import score_routes
from service.http.retrieval.tei import tei_routes
from service.http.shared.models import model_routes
from service.http.typed import typed_routes
from service.http.wire.connection import Connections
from service.http.wire.tls import tls_context
from service.repository.repository import ModelRepository
from service.settings import Settings, join_address

END_STREAMS_S = 0.5  # for streams to hear why they end
LAST_S = 0.1  # for requests that are on their way when the port closes
BACKLOG = 1_024
HANDSHAKE_TIMEOUT_S = 20.0


class HttpServer:
    """Binds its port when it is made, and listens once it is started."""

    def __init__(
        self,
        settings: Settings,
        operations: Operations,
        admission: Admission,
        calls: Calls,
        state: ServerState,
        repository: ModelRepository,
        *,
        is_shared: bool = False,
    ) -> None:
        """With `is_shared` other processes may have the same port."""
        elsewhere = ADMIN_METHODS if settings.admin_port >= 0 else ()
        self.front = Front(settings, operations, admission, calls, elsewhere)
        self.batches = _batches(settings, self.front, repository)
        routes = (
            *health_routes(state),
            *metadata_routes(),
            *protocol_routes(settings, repository),
            *model_routes(),
            *adapter_routes(settings),
            *completion_routes(),
            *chat_routes(),
            *message_routes(),
            *response_routes(),
            *embedding_routes(),
            *batch_routes(self.batches),
            *cohere_routes(),
            *tei_routes(repository),
            *token_routes(),
            *score_routes(),
            *predict_routes(),
            *reranking_routes(),
            *pooling_routes(),
            *inference_routes(repository),
            *typed_routes(operations),
        )
        page = page_routes() if settings.playground else ()
        self.front.use((*routes, *page, *openapi_routes(routes, operations)))
        self._tls = tls_context(settings)
        self._connections = Connections.of(settings, self.front, self.front.answered)
        self._sockets = _bind(
            settings.http_host or settings.host, settings.http_port, is_shared=is_shared
        )
        self._listening: list[asyncio.Server] = []
        self.port: int = self._sockets[0].getsockname()[1]

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        timeout_s = HANDSHAKE_TIMEOUT_S if self._tls is not None else None
        for each in self._sockets:
            server = await loop.create_server(
                self._connections.new,
                sock=each,
                ssl=self._tls,
                backlog=BACKLOG,
                ssl_handshake_timeout=timeout_s,
            )
            self._listening.append(server)
        if self.batches is not None:
            self.batches.start()

    async def leave(self) -> None:
        """Close the port, and every connection with the answer that is due on it."""
        if self.batches is not None:
            self.batches.leave()
        self._connections.is_leaving = True
        for server in self._listening:
            server.close()
        for each in self._sockets:
            each.close()
        for connection in self._connections.all:
            if connection.is_busy:
                connection.last()
        await asyncio.sleep(LAST_S)
        for connection in self._connections.all:
            connection.shutdown()

    async def stop(self) -> None:
        """End what is left of requests, with an answer that says so."""
        if self.batches is not None:
            await self.batches.stop()
        running = [each.running for each in self._connections.all if each.running is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=END_STREAMS_S)
        for connection in self._connections.all:
            connection.transport.abort()


def _batches(settings: Settings, front: Front, repository: ModelRepository) -> Runner | None:
    """The runner of batches; None without a folder for them. Raises `SettingError`."""
    if not settings.batch_folder:
        return None

    async def ask(path: str, body: bytes) -> LineAnswer:
        reply, request_id = await front.answer_own(path, body)
        content = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
        return LineAnswer(reply.status, content, request_id)

    return Runner(settings, Store(settings), ask, lambda: not repository.readiness.is_loading)


def _bind(host: str, port: int, *, is_shared: bool) -> list[socket.socket]:
    """A socket for every address of the host, on one port. Raises `LoadError`.

    They are named as TCP: of others asyncio leaves Nagle's algorithm on, and an answer is two
    writes.
    """
    bare = host.removeprefix("[").removesuffix("]")
    sockets: list[socket.socket] = []
    try:
        places = socket.getaddrinfo(
            bare or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, _, _, place in dict.fromkeys(places):
            made = socket.socket(family, kind, socket.IPPROTO_TCP)
            sockets.append(made)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if is_shared:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.setblocking(False)
            first_port = sockets[0].getsockname()[1]
            made.bind((place[0], first_port or port, *place[2:]))
    except OSError as error:
        for made in sockets:
            made.close()
        raise LoadError(
            f"cannot listen on {join_address(host, port)} for HTTP: {error.strerror or error}; "
            "choose another address with --http-host and --http-port, or --http-port -1 for none"
        ) from error
    return sockets
