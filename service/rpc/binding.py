"""The methods of gRPC: each operation of the server, its caller and its errors those of a call."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from service.api.calls import Arrival
from service.api.infer_stream import Exchange
from service.api.operations import Operation
from service.rpc.sending import send
from service.rpc.status import (
    ATTENDANT_CODES,
    ENDS,
    INFERENCE_CODES,
    Context,
    refuse,
)
from service.serving.model import Caller

_FACTORIES: dict[str, Callable[..., "grpc.RpcMethodHandler[Any, Any]"]] = {
    "unary": grpc.unary_unary_rpc_method_handler,
    "writing": grpc.unary_stream_rpc_method_handler,
    "exchange": grpc.stream_stream_rpc_method_handler,
}


def services(
    operations: Mapping[str, Operation], send_timeout_s: float
) -> Iterator[grpc.GenericRpcHandler]:
    """The handlers of each service."""
    for name, methods in groupby(operations.values(), lambda each: each.path.split("/")[1]):
        yield grpc.method_handlers_generic_handler(
            name, {each.name: _handler(each, send_timeout_s) for each in methods}
        )


def _handler(operation: Operation, send_timeout_s: float) -> "grpc.RpcMethodHandler[Any, Any]":
    makers = {"unary": _unary, "writing": _writing, "exchange": _exchange}
    return _FACTORIES[operation.kind](
        makers[operation.kind](operation, send_timeout_s),
        request_deserializer=cast("Any", operation.request).FromString,
        response_serializer=cast("Any", operation.response).SerializeToString,
    )


def _unary(operation: Operation, _: float) -> Callable[[Any, Context], Any]:
    call = operation.answer
    codes = ATTENDANT_CODES if operation.is_typed else INFERENCE_CODES

    async def answer(request: Message, context: Context) -> Message:
        received_s, remaining_s = time.monotonic(), context.time_remaining()
        deadline_s = None if remaining_s is None else received_s + remaining_s
        try:
            return await call(request, Caller(received_s, deadline_s))
        except Exception as error:
            await refuse(error, context, codes, operation.name)

    return answer


def _writing(operation: Operation, send_timeout_s: float) -> Callable[[Any, Context], Any]:
    call = operation.stream
    codes = ATTENDANT_CODES if operation.is_typed else INFERENCE_CODES

    async def answer(request: Message, context: Context) -> None:
        received_s, remaining_s = time.monotonic(), context.time_remaining()
        deadline_s = None if remaining_s is None else received_s + remaining_s
        write = functools.partial(send, context, send_timeout_s)
        try:
            await call(request, Caller(received_s, deadline_s), write)
        except Exception as error:
            await refuse(error, context, codes, operation.name)

    return answer


def _exchange(operation: Operation, send_timeout_s: float) -> Callable[[Any, Context], Any]:
    call = operation.call

    async def answer(_: object, context: Context) -> None:
        exchange = Exchange(
            read=context.read,
            end=grpc.aio.EOF,
            write=functools.partial(send, context, send_timeout_s),
            arrival=arrival_of(context),
            ends_on_errors=_asks_for_statuses(context),
        )
        try:
            # Left to the first answer, it would be sent again by an error that cancels that
            # answer's writing, which gRPC refuses: the client would hear nothing.
            await context.send_initial_metadata(())
            await call(exchange)
        except Exception as error:
            await refuse(error, context, INFERENCE_CODES, operation.name)

    return answer


def arrival_of(context: Context) -> Arrival:
    """A call's data for observers."""
    metadata = context.invocation_metadata() or ()
    return Arrival("grpc", ENDS, metadata, context.time_remaining)


def _asks_for_statuses(context: Context) -> bool:
    """Whether the first error of a model shall be the status of the whole stream."""
    metadata = context.invocation_metadata() or ()
    return any(key == "triton_grpc_error" and value == "true" for key, value in metadata)
