"""Transport of a client's calls: gRPC, or HTTP where the address says so.

Operations are named by gRPC's paths, `/package.Service/Method`, and messages are protobuf's: no
command knows which of the two it uses.
"""

from collections.abc import Generator
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from commands.ask.client.access import Access, is_http

M = TypeVar("M", bound=Message)


class Transport(Protocol):
    """Calls of one server, from any thread; each raises `CallError` where it fails."""

    def ask(self, path: str, request: Message, response: type[M]) -> M:
        """The answer of an operation that gives one."""
        ...

    def stream(self, path: str, request: Message, response: type[M]) -> Generator[M, None, None]:
        """Answers as they come; leaving the iterator before its end ends the call."""
        ...

    def close(self) -> None: ...


def transport_to(address: str, timeout_s: float, access: Access) -> Transport:
    """The transport that an address names, not yet connected. Raises `SettingError`."""
    if is_http(address):
        # Imported here, so that commands by gRPC start without it.
        from commands.ask.client.http_transport import HttpTransport

        return HttpTransport(address, timeout_s, access)
    from commands.ask.client.grpc_transport import GrpcTransport

    return GrpcTransport(address, timeout_s, access)
