"""Refuses calls that have no token, or not the key of their group, before a message is read."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import grpc
from grpc import StatusCode

from service.api.access import Access
from service.observe.server import Bound
from service.rpc.status import Context, keeping_nothing
from service.settings import Settings

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"  # None: no such method
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]"
Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
_CODES: dict[Bound, StatusCode] = {
    "token": StatusCode.UNAUTHENTICATED,
    "key": StatusCode.UNAVAILABLE,
}


class Authentication(grpc.aio.ServerInterceptor):
    """Refuses calls without a token, and calls of a restricted group without its key."""

    def __init__(self, settings: Settings, refusals: Counter[Bound] | None = None) -> None:
        counted = Counter() if refusals is None else refusals
        self._access = Access(
            settings, counted, "triton-grpc-protocol-{}", expected="metadata", restricted="protocol"
        )

    @property
    def has_rules(self) -> bool:
        """Whether any call could be refused; otherwise no check is needed."""
        return self._access.has_rules

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        method, metadata = handler_call_details.method, handler_call_details.invocation_metadata
        denial = self._access.denial(method, partial(_value_of, metadata))
        if denial is not None:
            return refusing(_CODES[denial.bound], denial.text)
        return await continuation(handler_call_details)


def refusing(code: StatusCode, text: str, trailers: Sequence[tuple[str, str]] = ()) -> Handler:
    """Ends a call of any kind at once, whatever it sends, which is not read."""

    async def refuse(requests: object, context: Context) -> None:
        await context.abort(code, text, tuple(trailers))

    return grpc.stream_stream_rpc_method_handler(keeping_nothing(refuse))


def _value_of(metadata: Metadata, name: str) -> str:
    """The first value of that name, or nothing."""
    for key, value in metadata:
        if key == name:
            return value if isinstance(value, str) else ""
    return ""
