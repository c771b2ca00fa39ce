"""Refuses calls that have no token, or not the key of their group, before a message is read."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from grpc import StatusCode

from service.api.access import (
    HEALTH_SERVICE,
    Digests,
    digests_of,
    is_one_of,
    read_tokens,
    restrictions,
)
from service.api.secrets import WatchedFiles
from service.observe.server import Bound
from service.rpc.status import Context, keeping_nothing
from service.settings import Settings

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"  # None: no such method
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]"
Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
_Check: TypeAlias = "Callable[[str, Metadata], tuple[StatusCode, str] | None]"


class Authentication(grpc.aio.ServerInterceptor):
    """Refuses calls without a token, and calls of a restricted group without its key."""

    def __init__(self, settings: Settings, refusals: Counter[Bound] | None = None) -> None:
        self._refusals: Counter[Bound] = Counter() if refusals is None else refusals
        self._tokens: WatchedFiles[Digests] | None = None
        if settings.token_file:
            path = Path(settings.token_file)
            self._tokens = WatchedFiles([path], lambda: digests_of(read_tokens(path)))
        self._keys = restrictions(settings.restricted_protocols)

    @property
    def has_rules(self) -> bool:
        """Whether any call could be refused; otherwise no check is needed."""
        return bool(self._tokens or self._keys)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        method, metadata = handler_call_details.method, handler_call_details.invocation_metadata
        checks: tuple[tuple[Bound, _Check], ...] = (
            ("token", self._without_token),
            ("key", self._without_key),
        )
        for bound, check in checks:
            refusal = check(method, metadata)
            if refusal is not None:
                self._refusals[bound] += 1
                return refusing(*refusal)
        return await continuation(handler_call_details)

    def _without_token(self, method: str, metadata: Metadata) -> tuple[StatusCode, str] | None:
        if self._tokens is None or method.startswith(HEALTH_SERVICE):
            return None
        given = _value_of("authorization", metadata)
        scheme, _, token = given.partition(" ")
        if not token or scheme.lower() != "bearer":
            text = "a token is missing, expected metadata 'authorization: Bearer <token>'"
            return StatusCode.UNAUTHENTICATED, text
        if not is_one_of(token.strip(), self._tokens.value):
            return StatusCode.UNAUTHENTICATED, "the token is not known to this server"
        return None

    def _without_key(self, method: str, metadata: Metadata) -> tuple[StatusCode, str] | None:
        restriction = self._keys.get(method)
        if restriction is None:
            return None
        header, digests = restriction
        if is_one_of(_value_of(header, metadata), digests.value):
            return None
        return StatusCode.UNAVAILABLE, f"This protocol is restricted, expecting header '{header}'"


def refusing(code: StatusCode, text: str, trailers: Sequence[tuple[str, str]] = ()) -> Handler:
    """Ends a call of any kind at once, whatever it sends, which is not read."""

    async def refuse(requests: object, context: Context) -> None:
        await context.abort(code, text, tuple(trailers))

    return grpc.stream_stream_rpc_method_handler(keeping_nothing(refuse))


def _value_of(name: str, metadata: Metadata) -> str:
    """The first value of that name, or nothing."""
    for key, value in metadata:
        if key == name:
            return value if isinstance(value, str) else ""
    return ""
