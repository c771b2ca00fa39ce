"""Who is inside: counts calls and bytes in flight, and refuses new ones while draining.

Lives on the event loop; no locks. Queues have their own bounds: this is the door. It is also where
the server's services read in what state the process is, see `app.py`.

`ConcurrencyLimit` sees every call before its message, and notes how large each message was as it
came. The note is a variable of the call's task, and of the tasks that it starts, so that a request
of a stream is admitted with its own size.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from service.errors import DeadlineExceeded, InvalidArgument, Overloaded, Unavailable
from service.rpc.auth import Continuation, Handler, refusing
from service.rpc.status import RETRY_HINT, UNREADABLE, Context
from service.rpc.wire import Inner, count_parts, inner_messages
from service.settings import Settings

PROBES = frozenset(
    (
        "/grpc.health.v1.Health/Check",
        "/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ServerReady",
        "/inference.GRPCInferenceService/ModelReady",
    )
)
_message_bytes: ContextVar[int] = ContextVar("bytes of the message that was read last", default=0)


class Admission:
    """The calls that must be answered before the process may end."""

    def __init__(self, settings: Settings) -> None:
        self.is_live = True  # False: restarting the process may help, nothing else will
        self.is_leaving = False  # no longer ready; calls are admitted until it drains
        self.is_draining = False
        self.max_stream_requests = settings.max_stream_requests
        self.num_inside = 0
        self._num_bytes = 0
        self._max_bytes = settings.max_bytes_in_flight
        self._send_timeout_s = settings.send_timeout_s
        self._empty = asyncio.Event()
        self._empty.set()

    def admit(self, context: Context) -> None:
        """Count a call in, or raise `Unavailable` while draining, `Overloaded` beyond the bound.

        It is counted out when the call is done: a large answer takes its time after the
        method has returned it, and closing the port would cut it off.
        """
        num_bytes = self._enter()
        context.add_done_callback(lambda _: self._leave(num_bytes))  # type: ignore[arg-type] # a function will do

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """The same for one request of a stream: counted while the block runs."""
        num_bytes = self._enter()
        try:
            yield
        finally:
            self._leave(num_bytes)

    def hold(self, num_bytes: int) -> None:
        """Count an answer, too, until its call is done: when the client has read it, or is gone.

        It is never refused; the requests after it are.
        """
        task = asyncio.current_task()
        assert task is not None, "grpc.aio runs every call in a task"
        self._num_bytes += num_bytes
        task.add_done_callback(lambda _: self._release(num_bytes))

    async def send(self, context: Context, message: object) -> None:
        """Write one message of a stream; raises `DeadlineExceeded` where it is not read in time.

        What the request holds is then freed. gRPC keeps the message and the status until the
        client reads on or its connection ends.
        """
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await context.write(message)
        except grpc.aio.BaseError as error:  # the connection ended before gRPC could cancel this
            raise asyncio.CancelledError from error
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"an answer was not read for {self._send_timeout_s:g} s, which is the limit"
            ) from error

    async def drain(self, timeout_s: float) -> None:
        """Refuse new calls and wait for those inside; `num_inside` tells how many are left."""
        self.is_leaving = self.is_draining = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout_s)

    def _enter(self) -> int:
        if self.is_draining:
            raise Unavailable(
                "GRPC server is shutting down and has stopped accepting new requests."
            )
        num_bytes = _message_bytes.get()
        if num_bytes > self._max_bytes:
            raise InvalidArgument(
                f"the request has {num_bytes} bytes, "
                f"the server takes at most {self._max_bytes} in flight"
            )
        if self._num_bytes + num_bytes > self._max_bytes:
            raise Overloaded(f"Exceeds maximum of {self._max_bytes} bytes in flight")
        self._num_bytes += num_bytes
        self.num_inside += 1
        self._empty.clear()
        return num_bytes

    def _release(self, num_bytes: int) -> None:
        self._num_bytes -= num_bytes

    def _leave(self, num_bytes: int) -> None:
        self._release(num_bytes)
        self.num_inside -= 1
        if not self.num_inside:
            self._empty.set()


class ConcurrencyLimit(grpc.aio.ServerInterceptor):
    """At most so many calls at once, open streams included; probes are answered beside them."""

    def __init__(self, settings: Settings, admission: Admission) -> None:
        self._max_calls = max_calls = settings.max_concurrent_rpcs
        self._num_calls = 0
        self._full = refusing(
            StatusCode.RESOURCE_EXHAUSTED,
            f"Exceeds maximum of {max_calls} calls in flight",
            RETRY_HINT,
        )
        measured = functools.partial(
            _measured, hold=admission.hold, max_parts=settings.max_message_parts
        )
        self._measured = functools.lru_cache(maxsize=256)(measured)  # more than there are methods

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        method = handler_call_details.method
        if method in PROBES:
            return self._measured(await continuation(handler_call_details))
        if self._num_calls >= self._max_calls:
            return self._full
        task = asyncio.current_task()  # the call's, which ends when its status is sent
        assert task is not None, "grpc.aio runs every call in a task"
        self._num_calls += 1
        task.add_done_callback(self._leave)
        return self._measured(await continuation(handler_call_details))

    def _leave(self, _: object) -> None:
        self._num_calls -= 1


def _measured(handler: Any, hold: Callable[[int], None], max_parts: int) -> Handler:  # noqa: ANN401
    """The same method, whose messages are measured, and answered where they are none.

    A handler is a named tuple that has no public type.
    """
    if handler is None or handler.request_deserializer is None:
        return handler  # type: ignore[no-any-return] # a method that there is not, or a refusal
    parse = handler.request_deserializer
    inner = inner_messages(parse.__self__.DESCRIPTOR)  # of the message's class, whose method it is
    read = functools.partial(_read_noting, parse, inner, max_parts)
    changes: dict[str, object] = {"request_deserializer": read}
    if not handler.request_streaming:  # streams read inside of their method, which answers
        changes["request_deserializer"] = functools.partial(_read_or_error, read)
        kind = "unary_stream" if handler.response_streaming else "unary_unary"
        changes[kind] = _refusing_unreadable(getattr(handler, kind))
    if not handler.response_streaming:
        write = handler.response_serializer
        changes["response_serializer"] = functools.partial(_write_holding, write, hold)
    changed: Handler = handler._replace(**changes)
    return changed


def _read_noting(
    parse: Callable[[bytes], object], inner: Inner, max_parts: int, message: bytes
) -> object:
    _message_bytes.set(len(message))
    if count_parts(message, inner, max_parts) > max_parts:
        raise InvalidArgument(
            f"the message has more than {max_parts} fields, counting those of the messages in it"
        )
    return parse(message)


def _write_holding(
    write: Callable[[object], bytes], hold: Callable[[int], None], message: object
) -> bytes:
    raw = write(message)
    hold(len(raw))
    return raw


def _read_or_error(read: Callable[[bytes], object], message: bytes) -> object:
    """The message, or why it is none: raised here, gRPC would make it UNKNOWN with a traceback."""
    try:
        return read(message)
    except (DecodeError, InvalidArgument) as error:
        return error


def _refusing_unreadable(method: Callable[[Any, Context], Awaitable[Any]]) -> object:
    async def answer(request: object, context: Context) -> object:
        if isinstance(request, DecodeError):
            await context.abort(StatusCode.INTERNAL, UNREADABLE)
        if isinstance(request, InvalidArgument):
            await context.abort(StatusCode.INVALID_ARGUMENT, str(request))
        return await method(request, context)

    return answer
