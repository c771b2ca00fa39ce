"""A small synchronous client of the typed API, for the command line and for trying models."""

from collections.abc import Generator
from contextlib import closing
from typing import Any, Self, TypeVar

from google.protobuf.message import Message

from commands.ask.client.access import NO_ACCESS, Access
from commands.ask.client.transport import transport_to
from service.calls.generation import Generate, GenerateChunk, GenerateResponse
from service.calls.models import ListModels, Models

M = TypeVar("M", bound=Message)


class Client:
    """The calls of one server, by gRPC or HTTP; each raises `CallError` where it fails."""

    def __init__(self, address: str, timeout_s: float, access: Access = NO_ACCESS) -> None:
        """Raises `SettingError`."""
        self._transport = transport_to(address, timeout_s, access)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def ask(self, call: Any, name: str = "") -> Any:
        """The record of the answer to a request, which is a record of `service/calls`, too.

        The method's name is the record's, unless another one is given.
        """
        from commands.ask.client.methods import method_named  # all messages

        method = method_named(name or type(call).__name__)
        return method.read(self.call(method.path, method.response, method.write(call)))

    def call(self, path: str, response: type[M], request: Message) -> M:
        """The answer of the operation at a path."""
        return self._transport.ask(path, request, response)

    def models(self) -> Models:
        """Models that the server offers."""
        answer: Models = self.ask(ListModels())
        return answer

    def generate(self, call: Generate) -> GenerateResponse:
        """The whole answer to a prompt."""
        answer: GenerateResponse = self.ask(call, "GenerateUnary")
        return answer

    def stream(self, call: Generate) -> Generator[GenerateChunk, None, None]:
        """Chunks as they come; leaving the iterator before its end ends the request."""
        from commands.ask.client.methods import method_named

        method = method_named("Generate")
        stream = self._transport.stream(method.path, method.write(call), method.response)
        with closing(stream) as messages:
            yield from map(method.read, messages)
