"""Maps the domain's errors to status codes: one table per service, one decorator.

`inference.GRPCInferenceService` answers as Triton does, because its clients match on
that: an error that may pass is UNAVAILABLE. `attendant.v1` uses the code that
describes the error, and a hint when to retry.
"""

import functools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode

from service import errors
from service.errors import forget_frames
from service.records import current_call
from service.serving.model import Caller

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
S = TypeVar("S")  # service
Q = TypeVar("Q")  # request
R = TypeVar("R")  # response
Method: TypeAlias = Callable[[S, Q, Context], Coroutine[Any, Any, R]]
logger = logging.getLogger(__name__)

_COMMON: dict[type[errors.AttendantError], StatusCode] = {
    errors.InvalidArgument: StatusCode.INVALID_ARGUMENT,
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
}
INFERENCE_CODES = _COMMON | {
    errors.WrongTask: StatusCode.INVALID_ARGUMENT,
    errors.Overloaded: StatusCode.UNAVAILABLE,
    errors.TimedOut: StatusCode.UNAVAILABLE,
}
ATTENDANT_CODES = _COMMON | {
    errors.WrongTask: StatusCode.FAILED_PRECONDITION,
    errors.Overloaded: StatusCode.RESOURCE_EXHAUSTED,
    errors.TimedOut: StatusCode.DEADLINE_EXCEEDED,
}
RETRY_AFTER_MS = 100  # about a full queue's worth of small batches
# A status travels in a header: over 8 KiB, percent-encoded as three bytes for one, clients get
# another error instead.
MAX_DETAILS_BYTES = 2_000
UNREADABLE = "Unable to parse request"  # Triton's text and code
INTERNAL_ERROR = "internal error, see the server's log"
RETRY_PUSHBACK = "grpc-retry-pushback-ms"
RETRY_HINT = ((RETRY_PUSHBACK, str(RETRY_AFTER_MS)),)


def answers_errors(
    codes: dict[type[errors.AttendantError], StatusCode],
) -> Callable[[Method[S, Q, R]], Method[S, Q, R]]:
    """Decorate a method `(self, request, context)`: domain errors become statuses.

    It answers by what it returns, or streams by `context.write`: an error may come at any time.
    """

    def decorate(method: Method[S, Q, R]) -> Method[S, Q, R]:
        @functools.wraps(method)
        async def answer(service: S, request: Q, context: Context) -> R:
            try:
                return await method(service, request, context)
            except errors.AttendantError as error:
                code = codes[type(error)]
                note_status(code, details(error))
                await context.abort(code, details(error), retry_hint(code, error))
            except DecodeError:  # of a stream; other messages are read before this is called
                await context.abort(StatusCode.INTERNAL, UNREADABLE)
            except Exception:
                logger.exception("%s failed", method.__name__)
                note_status(StatusCode.INTERNAL, INTERNAL_ERROR)
                await context.abort(StatusCode.INTERNAL, INTERNAL_ERROR)

        return answer

    return decorate


def keeping_nothing(
    method: Callable[[Any, Context], Awaitable[Any]],
) -> Callable[[Any, Context], Awaitable[Any]]:
    """The same method, whose request is gone once it has failed.

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
    call = current_call.get()
    if call is not None:
        call.code, call.status, call.error = code.value[0], code.name, text


def caller_of(context: Context, *, priority: int = 0, request_id: str = "") -> Caller:
    """The record of a call that has just arrived."""
    received_s = time.monotonic()
    remaining_s = context.time_remaining()
    deadline_s = None if remaining_s is None else received_s + remaining_s
    return Caller(received_s, deadline_s, priority, request_id=request_id)


def details(error: errors.AttendantError) -> str:
    """The error's text for the client, cut if it is too long for a header."""
    text = str(error).encode()
    cut = text[:MAX_DETAILS_BYTES].decode(errors="ignore")
    return cut if len(text) <= MAX_DETAILS_BYTES else f"{cut}..."
