"""Maps the domain's errors to status codes: one table per kind of service, one refusal.

`inference.GRPCInferenceService` answers as Triton does, because its clients match on
that: an error that may pass is UNAVAILABLE. `attendant.v1` uses the code that
describes the error, and a hint when to retry.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from service import errors
from service.api.calls import INTERNAL_ERROR, Ends, details, logged, note_end
from service.errors import forget_frames

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
logger = logging.getLogger(__name__)

_COMMON: dict[type[BaseException], StatusCode] = {
    errors.InvalidArgument: StatusCode.INVALID_ARGUMENT,
    errors.InputTooLong: StatusCode.INVALID_ARGUMENT,
    errors.LacksKind: StatusCode.INVALID_ARGUMENT,
    errors.NoChatTemplate: StatusCode.INVALID_ARGUMENT,
    errors.NotFound: StatusCode.NOT_FOUND,
    errors.AlreadyExists: StatusCode.ALREADY_EXISTS,
    errors.Unimplemented: StatusCode.UNIMPLEMENTED,
    errors.Unavailable: StatusCode.UNAVAILABLE,
    errors.ModelFailed: StatusCode.INTERNAL,
    errors.RegionFailed: StatusCode.INTERNAL,
    errors.LoadError: StatusCode.INTERNAL,
    errors.DeviceFailed: StatusCode.INTERNAL,
    errors.DeadlineExceeded: StatusCode.DEADLINE_EXCEEDED,
    errors.TooLate: StatusCode.DEADLINE_EXCEEDED,
    errors.WaitTooLong: StatusCode.UNAVAILABLE,
    errors.TooEarly: StatusCode.DEADLINE_EXCEEDED,
}
INFERENCE_CODES: errors.ByKind[StatusCode] = errors.ByKind(
    _COMMON
    | {
        errors.WrongTask: StatusCode.INVALID_ARGUMENT,
        errors.OutOfMemory: StatusCode.INTERNAL,  # a proxy would repeat UNAVAILABLE at once
        errors.Overloaded: StatusCode.UNAVAILABLE,
        errors.TimedOut: StatusCode.UNAVAILABLE,
    }
)
ATTENDANT_CODES: errors.ByKind[StatusCode] = errors.ByKind(
    _COMMON
    | {
        errors.WrongTask: StatusCode.FAILED_PRECONDITION,
        errors.OutOfMemory: StatusCode.RESOURCE_EXHAUSTED,
        errors.Overloaded: StatusCode.RESOURCE_EXHAUSTED,
        errors.TimedOut: StatusCode.DEADLINE_EXCEEDED,
    }
)


def _end(code: StatusCode) -> tuple[int, str]:
    return code.value[0], code.name


# What ends a call, for observers.
ENDS: Ends = errors.ByKind(
    {
        **{error: _end(code) for error, code in INFERENCE_CODES.items()},
        asyncio.CancelledError: _end(StatusCode.CANCELLED),
        TimeoutError: _end(StatusCode.DEADLINE_EXCEEDED),
        Exception: _end(StatusCode.INTERNAL),
    }
)
RETRY_AFTER_MS = 100  # about a full queue's worth of small batches
UNREADABLE = "Unable to parse request"  # Triton's text and code
RETRY_PUSHBACK = "grpc-retry-pushback-ms"
RETRY_HINT = ((RETRY_PUSHBACK, str(RETRY_AFTER_MS)),)


async def refuse(
    error: Exception,
    context: Context,
    codes: errors.ByKind[StatusCode],
    name: str,
) -> NoReturn:
    """End a method of that name with the status of an error; always raises."""
    if isinstance(error, errors.AttendantError):
        code = codes[type(error)]
        note_status(code, logged(error))
        await context.abort(code, details(error), retry_hint(code, error))
    if isinstance(error, DecodeError):  # of a stream; other messages are read before it is called
        await context.abort(StatusCode.INTERNAL, UNREADABLE)
    logger.error("%s failed", name, exc_info=error)
    note_status(StatusCode.INTERNAL, INTERNAL_ERROR)
    await context.abort(StatusCode.INTERNAL, INTERNAL_ERROR)


def keeping_nothing(
    method: Callable[[Any, Context], Awaitable[Any]],
) -> Callable[[Any, Context], Awaitable[Any]]:
    """A method whose request is gone once it has failed.

    gRPC's record of a call keeps the error that aborts it, the error its traceback, that the frames
    of all these functions, and they the request, the context and so the record.
    """

    async def answer(request: object, context: Context) -> object:
        try:
            return await method(request, context)
        except BaseException as error:
            forget_frames(error)
            del request, context  # of this frame, which the error comes through once more
            raise

    return answer


def retry_hint(code: StatusCode, error: errors.AttendantError) -> tuple[tuple[str, str], ...]:
    """When to come back, as trailing metadata: not before the wait is within its bound again."""
    if isinstance(error, errors.WaitTooLong):
        pushback_ms = max(RETRY_AFTER_MS, round(error.excess_s * 1e3))
        return ((RETRY_PUSHBACK, str(pushback_ms)),)
    return RETRY_HINT if code is StatusCode.RESOURCE_EXHAUSTED else ()


def note_status(code: StatusCode, text: str = "") -> None:
    """Note the status in the record of this task's request, if there is one."""
    note_end(_end(code), text)
