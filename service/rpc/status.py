"""From the domain's errors to status codes: one table per service, one decorator.

`inference.GRPCInferenceService` answers as Triton does, since its clients match on
that: whatever may succeed later is UNAVAILABLE. `attendant.v1` uses the code that
says what happened, and a hint when to come back.
"""

import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import grpc
from grpc import StatusCode

from service import errors

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
S = TypeVar("S")  # service
Q = TypeVar("Q")  # request
R = TypeVar("R")  # response
Method: TypeAlias = Callable[[S, Q, Context], Coroutine[Any, Any, R]]
logger = logging.getLogger(__name__)

_COMMON: dict[type[errors.AttendantError], StatusCode] = {
    errors.InvalidArgument: StatusCode.INVALID_ARGUMENT,
    errors.NotFound: StatusCode.NOT_FOUND,
    errors.Unimplemented: StatusCode.UNIMPLEMENTED,
    errors.Unavailable: StatusCode.UNAVAILABLE,
    errors.ModelFailed: StatusCode.INTERNAL,
    errors.DeadlineExceeded: StatusCode.DEADLINE_EXCEEDED,
}
INFERENCE_CODES = _COMMON | {
    errors.WrongTask: StatusCode.INVALID_ARGUMENT,
    errors.Overloaded: StatusCode.UNAVAILABLE,
}
ATTENDANT_CODES = _COMMON | {
    errors.WrongTask: StatusCode.FAILED_PRECONDITION,
    errors.Overloaded: StatusCode.RESOURCE_EXHAUSTED,
}
RETRY_AFTER_MS = 100  # about a full queue's worth of small batches
# A status travels in a header: over 8 KiB, percent-encoded as three bytes for one, clients get
# another error instead.
MAX_DETAILS_BYTES = 2_000
RETRY_HINT = (("grpc-retry-pushback-ms", str(RETRY_AFTER_MS)),)


def answers_errors(
    codes: dict[type[errors.AttendantError], StatusCode],
) -> Callable[[Method[S, Q, R]], Method[S, Q, R]]:
    """Decorate a unary method `(self, request, context)`: domain errors become statuses."""

    def decorate(method: Method[S, Q, R]) -> Method[S, Q, R]:
        @functools.wraps(method)
        async def answer(service: S, request: Q, context: Context) -> R:
            try:
                return await method(service, request, context)
            except errors.AttendantError as error:
                code = codes[type(error)]
                hint = RETRY_HINT if code is StatusCode.RESOURCE_EXHAUSTED else ()
                await context.abort(code, _details(error), hint)
            except Exception:
                logger.exception("%s failed", method.__name__)
                await context.abort(StatusCode.INTERNAL, "internal error, see the server's log")

        return answer

    return decorate


def _details(error: errors.AttendantError) -> str:
    text = str(error).encode()
    cut = text[:MAX_DETAILS_BYTES].decode(errors="ignore")
    return cut if len(text) <= MAX_DETAILS_BYTES else f"{cut}..."
