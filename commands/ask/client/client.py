"""A small synchronous client of the typed API, for the command line and for trying models."""

from collections.abc import Generator
from typing import Any, Self, TypeVar

from attendant.v1 import generation_pb2
from google.protobuf.message import Message

from commands.ask.client.access import NO_ACCESS, Access
from commands.ask.client.transport import transport_to
from service.calls.models import ListModels, Models

M = TypeVar("M", bound=Message)
GENERATION = "/attendant.v1.GenerationService/"


class Client:
    """The calls of one server, by gRPC or HTTP; each raises `CallError` where it fails."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        """Raises `SettingError`."""
        self._transport = transport_to(address, timeout_s, access)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def ask(self, call: Any) -> Any:
        """The record of the answer to a request, which is a record of `service/calls`, too."""
        from commands.ask.client.methods import method_of  # NumPy, and all messages

        kind: Any = type(call)
        method = method_of(kind)
        return method.read(self.call(method.path, method.response, method.write(call)))

    def call(self, path: str, response: type[M], request: Message) -> M:
        """The answer of the operation at a path."""
        return self._transport.ask(path, request, response)

    def models(self) -> Models:
        """Models that the server offers."""
        answer: Models = self.ask(ListModels())
        return answer

    def generate(self, request: generation_pb2.GenerateRequest) -> generation_pb2.GenerateResponse:
        """The whole answer to a prompt."""
        path = f"{GENERATION}GenerateUnary"
        return self.call(path, generation_pb2.GenerateResponse, request)

    def stream(
        self, request: generation_pb2.GenerateRequest
    ) -> Generator[generation_pb2.GenerateChunk, None, None]:
        """Chunks as they come; leaving the iterator before its end ends the request."""
        path = f"{GENERATION}Generate"
        yield from self._transport.stream(path, request, generation_pb2.GenerateChunk)
