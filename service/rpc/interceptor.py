"""The wrapper of every method of every service: its bounds, and how its messages are read.

Wrapped as it is registered: an interceptor would cost each call twenty microseconds more.
"""

import asyncio
import functools
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import Any, cast

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from service.api.admission import Admission, Stay, current_stay
from service.api.calls import WATCHED, Calls
from service.api.long_message import LongInferResponse
from service.api.wire import inner_messages
from service.errors import InvalidArgument
from service.rpc.authentication import Handler, refusing
from service.rpc.binding import arrival_of
from service.rpc.messages import (
    LongContext,
    LongReader,
    LongWriter,
    Unread,
    read_message,
    read_noting,
    read_unless_long,
    write_holding,
    write_unless_bytes,
)
from service.rpc.metadata_bound import metadata_bound
from service.rpc.status import RETRY_HINT, UNREADABLE, Context, keeping_nothing, note_status
from service.settings import Settings

LINGER_BYTES = 2**16  # of a call's messages: clients grant as much without saying more
MIN_SMALL = 20  # calls of a method without a long message, until answers leave with their status
LINGER_S = 1.0  # while the server drains, for what the kernel has of a large answer to arrive
PROBES = frozenset(
    (
        "/grpc.health.v1.Health/Check",
        "/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ServerReady",
        "/inference.GRPCInferenceService/ModelReady",
    )
)


class Door:
    """In place of a server where services are registered; their calls come through here.

    At most `max_concurrent_rpcs` at once, open streams included; probes are answered beside them.
    """

    def __init__(
        self,
        server: grpc.aio.Server,
        settings: Settings,
        admission: Admission,
        calls: Calls,
        elsewhere: Collection[str] = (),  # methods that another port answers
    ) -> None:
        self._elsewhere = elsewhere
        self._moved = refusing(
            StatusCode.UNAVAILABLE, "This protocol is restricted to the port for administration"
        )
        self._server = server
        self._admission = admission
        self._refusals = admission.refusals
        self._max_calls = max_calls = settings.max_concurrent_rpcs
        self.num_calls = 0
        self.num_begun = 0  # since the start, probes left out
        self.num_entered = 0  # probes included, since the start
        self._num_small: Counter[str] = Counter()  # calls of a method since one with a long message
        self._sent_long_s = -inf  # when a call that sent its long answer with its status was over
        self._full = refusing(
            StatusCode.RESOURCE_EXHAUSTED,
            f"Exceeds maximum of {max_calls} calls in flight",
            RETRY_HINT,
        )
        self._wrap = functools.partial(
            _measured,
            admission=admission,
            reader=ThreadPoolExecutor(1, "long messages"),  # one at a time: they are large
            writer=LongWriter(admission, ThreadPoolExecutor(1, "long answers")),
            max_bytes=settings.max_message_bytes,
            max_parts=settings.max_message_parts,
            receive_timeout_s=settings.receive_timeout_s,
            calls=calls,
        )
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}  # by path, as there are methods

    def add_generic_rpc_handlers(self, services: tuple[grpc.GenericRpcHandler, ...]) -> None:
        """Called by generated code, like the next."""
        self._server.add_generic_rpc_handlers(
            tuple(_Service(methods, self._enter) for methods in services)
        )

    def add_registered_method_handlers(self, service: str, methods: object) -> None:
        """Ignore the methods that are added again, for servers that look them up otherwise."""

    @property
    def linger_s(self) -> float:
        """The time that the last long answer needs to arrive, before its connection may end."""
        return max(0.0, self._sent_long_s + LINGER_S - time.monotonic())

    def _enter(self, path: str, method: Handler) -> Handler:
        """The handler of a call, which runs in the call's task."""
        self.num_entered += 1
        if path not in self._wrapped:
            self._wrapped[path] = self._wrap(method, path)
        whole, apart = self._wrapped[path]
        if path in PROBES:
            return whole
        if path in self._elsewhere:
            return self._moved
        if self.num_calls >= self._max_calls:
            self._refusals["calls"] += 1
            return self._full
        task = asyncio.current_task()  # the call's, which ends when its status is sent
        assert task is not None, "grpc.aio runs every call in a task"
        self.num_calls += 1
        self.num_begun += 1
        stay = Stay()
        current_stay.set(stay)
        has_small = self._num_small[path] >= MIN_SMALL
        is_whole = whole is not apart and has_small and not self._admission.is_leaving
        if is_whole:
            self._admission.whole_calls.enter()
        task.add_done_callback(functools.partial(self._leave, path, stay, is_whole))
        return whole if is_whole else apart

    def _leave(self, path: str, stay: Stay, is_whole: bool, _: object) -> None:
        self.num_calls -= 1
        is_small = stay.num_bytes <= LINGER_BYTES
        self._num_small[path] = self._num_small[path] + 1 if is_small else 0
        if is_whole:
            self._admission.whole_calls.leave()
            if not is_small:
                self._sent_long_s = time.monotonic()
        self._admission.let_go(stay)


class _Service(grpc.GenericRpcHandler):
    """The methods of one service by their paths."""

    def __init__(
        self,
        methods: grpc.GenericRpcHandler,
        enter: Callable[[str, Handler], Handler],
    ) -> None:
        self._methods = methods
        self._enter = enter
        self._bound = metadata_bound()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        self._bound.begin()
        method = self._methods.service(handler_call_details)
        return None if method is None else self._enter(handler_call_details.method, method)


def _measured(
    handler: Any,  # noqa: ANN401
    path: str,
    admission: Admission,
    reader: ThreadPoolExecutor,
    writer: LongWriter,
    max_bytes: int,
    max_parts: int,
    receive_timeout_s: float,
    calls: Calls,
) -> tuple[Handler, Handler]:
    """Handlers of a method whose messages are measured, and answered where they are none.

    Twice: the first sends an answer and its status as one, the second apart, for a server that is
    about to end; the same where there is no difference. It is reported to observers; requests of
    streams are reported one by one inside. A handler is a named tuple that has no public type.
    """
    if handler is None or handler.request_deserializer is None:
        return handler, handler  # a method that there is not, or a refusal
    parse, write = handler.request_deserializer, handler.response_serializer
    inner = inner_messages(parse.__self__.DESCRIPTOR)  # of the message's class, whose method it is
    read = functools.partial(read_message, parse, inner, max_bytes, max_parts)
    long_reader = LongReader(read, admission, reader)
    is_unary = not handler.request_streaming and not handler.response_streaming
    if is_unary:
        write = functools.partial(write_holding, write, admission.hold)
    else:
        write = functools.partial(write_unless_bytes, write)
    made = handler._replace(
        request_deserializer=functools.partial(read_unless_long, read), response_serializer=write
    )
    if path in PROBES:
        # As gRPC has it, which is quicker: they take no place that a missing message could hold.
        answer = _refusing_unreadable(handler.unary_unary, admission, writer)
        made = made._replace(unary_unary=keeping_nothing(_finishing(answer, long_reader)))
        return made, made
    if handler.request_streaming and inspect.isasyncgenfunction(handler.stream_stream):
        made = made._replace(request_deserializer=functools.partial(read_noting, read))
        return made, made  # reflection's
    if handler.request_streaming:
        answer = _long_stream(handler.stream_stream, long_reader, writer)
        made = made._replace(stream_stream=keeping_nothing(answer))
        return made, made
    kind = "unary_unary" if is_unary else "unary_stream"
    answer = _refusing_unreadable(getattr(handler, kind), admission, writer)
    is_watched = calls.is_on and path.startswith(WATCHED)
    answer = _watched(path, answer, calls) if is_watched else answer
    answer = _receiving(answer, long_reader, receive_timeout_s)
    # The same on the wire; but of other methods gRPC reads the message itself, however long it
    # takes to come.
    made = made._replace(**{kind: None}, request_streaming=True)
    apart = made._replace(
        response_streaming=True,
        stream_stream=keeping_nothing(_sending(answer, admission) if is_unary else answer),
    )
    return made._replace(stream_unary=keeping_nothing(answer)) if is_unary else apart, apart


def _watched(
    path: str, method: Callable[[Any, Context], Awaitable[Any]], calls: Calls
) -> Callable[[Any, Context], Awaitable[Any]]:
    """A method whose calls are observed."""

    async def answer(message: object, context: Context) -> object:
        with calls.watch(path, message, arrival_of(context)):
            return await method(message, context)

    return answer


def _receiving(
    method: Callable[[Any, Context], Awaitable[Any]], reader: LongReader, timeout_s: float
) -> Callable[[Any, Context], Awaitable[Any]]:
    """A method that takes one message, which must be there in time."""

    async def answer(_: object, context: Context) -> object:
        request = await _received(context, timeout_s)
        if request is None:
            text = f"the message was not there after {timeout_s:g} s, which is the limit"
            await context.abort(StatusCode.DEADLINE_EXCEEDED, text)
        if request is grpc.aio.EOF:
            await context.abort(StatusCode.INVALID_ARGUMENT, "the call has no message")
        if isinstance(request, Unread):
            request = await reader.finish(request)
        return await method(request, context)

    return answer


async def _received(context: Context, timeout_s: float) -> object:
    """A call's message, or None after so long; `asyncio.timeout` takes several times as long."""
    task, is_late = asyncio.current_task(), False
    assert task is not None, "grpc.aio runs every call in a task"

    def end() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(timeout_s, end)
    try:
        return await context.read()
    except asyncio.CancelledError:
        if not is_late or task.uncancel():  # the client has left, perhaps as well
            raise
        return None
    finally:
        timer.cancel()


def _finishing(
    method: Callable[[Any, Context], Awaitable[Any]], reader: LongReader
) -> Callable[[Any, Context], Awaitable[Any]]:
    """A method whose message gRPC receives."""

    async def answer(request: object, context: Context) -> object:
        if isinstance(request, Unread):
            request = await reader.finish(request)
        return await method(request, context)

    return answer


def _sending(
    method: Callable[[Any, Context], Awaitable[Any]], admission: Admission
) -> Callable[[Any, Context], Awaitable[None]]:
    """A method whose answer is sent before its status, which waits for it while the server drains.

    Not used otherwise: a server that hangs or dies between the two has lost the call, which a
    client may not repeat once it has begun to be answered.

    gRPC closes an ending connection as soon as its last status is handed to the
    kernel, and the kernel throws away what is not sent yet when the client says anything more.
    """

    async def answer(requests: object, context: Context) -> None:
        try:
            await context.write(await method(requests, context))
        except grpc.aio.BaseError as error:  # the connection ended before gRPC could cancel this
            raise asyncio.CancelledError from error
        stay = current_stay.get()
        if admission.is_draining and stay is not None and stay.num_bytes > LINGER_BYTES:
            await asyncio.sleep(LINGER_S)

    return answer


def _long_stream(
    method: Callable[[Any, Context], Awaitable[Any]], reader: LongReader, writer: LongWriter
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def answer(requests: object, context: Context) -> object:
        return await method(requests, cast("Context", LongContext(context, reader, writer)))

    return answer


def _refusing_unreadable(
    method: Callable[[Any, Context], Awaitable[Any]], admission: Admission, writer: LongWriter
) -> Callable[[Any, Context], Awaitable[Any]]:
    """A method for messages that could be read; its answer waits while all are held."""

    async def answer(request: object, context: Context) -> object:
        if isinstance(request, DecodeError):
            note_status(StatusCode.INTERNAL, UNREADABLE)
            await context.abort(StatusCode.INTERNAL, UNREADABLE)
        if isinstance(request, InvalidArgument):
            note_status(StatusCode.INVALID_ARGUMENT, str(request))
            await context.abort(StatusCode.INVALID_ARGUMENT, str(request))
        response = await method(request, context)
        if isinstance(response, LongInferResponse):
            response = await writer.finish(response)
        if admission.is_holding:
            await admission.until_released()
        return response

    return answer
