"""Calls over gRPC: one channel, which any thread may use."""

from collections.abc import Generator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from commands.ask.client.access import Access, explained, open_channel
from commands.ask.client.refusal import CallError

M = TypeVar("M", bound=Message)
MAX_MESSAGE_BYTES = 2**31 - 1
PUSHBACK = "grpc-retry-pushback-ms"  # of a refusal: when the same request may succeed


class GrpcTransport:
    """The calls of one channel."""

    def __init__(self, address: str, timeout_s: float, access: Access) -> None:
        """Raises `SettingError`."""
        authorization = (("authorization", f"Bearer {access.token}"),) if access.token else ()
        self._options: dict[str, Any] = {"timeout": timeout_s, "metadata": authorization}
        self._address = address
        self._timeout_s = timeout_s
        self._channel = open_channel(
            address, access, [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        )

    def ask(self, path: str, request: Message, response: type[M]) -> M:
        call = self._channel.unary_unary(
            path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            return call(request, **self._options)
        except grpc.RpcError as error:
            raise self._call_error(error) from error

    def stream(self, path: str, request: Message, response: type[M]) -> Generator[M, None, None]:
        call = self._channel.unary_stream(
            path,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )(request, **self._options)
        try:
            yield from call
        except grpc.RpcError as error:
            raise self._call_error(error) from error
        finally:
            call.cancel()

    def close(self) -> None:
        """End the calls that are under way, too."""
        self._channel.close()

    def _call_error(self, error: grpc.RpcError) -> CallError:
        text = explained(error, self._address, self._timeout_s)
        return CallError(error.code().name, text, _retry_after_s(error))


def _retry_after_s(error: grpc.RpcError) -> float:
    for entry in error.trailing_metadata() or ():
        if entry.key == PUSHBACK and str(entry.value).isdecimal():
            return int(entry.value) / 1_000
    return 0.0
