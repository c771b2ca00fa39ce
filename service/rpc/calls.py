"""Reports every request to observers: its beginning and its end.

Without observers no method is wrapped and no record made. A request of `ModelStreamInfer` counts
like a call of its own; probes, health and reflection calls are not recorded.
"""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from grpc import StatusCode

from service.errors import AttendantError
from service.records import Call, current_call
from service.rpc.status import INFERENCE_CODES, Context, details, note_status

MAX_CHARACTERS = 256  # of a name that came from a client
WATCHED = ("/inference.", "/attendant.")  # our own services
CLOCKS_APART_S = 0.1  # a client's deadline passes this much before ours at most, and it leaves
_NOBODY = nullcontext()


class CallObserver(Protocol):
    """An observer of requests; called on the event loop, and must not raise."""

    def began(self, call: Call, metadata: Iterable[tuple[str, str | bytes]]) -> None: ...

    def ended(self, call: Call) -> None: ...


class Calls:
    """The observers of one server."""

    def __init__(self, *observers: CallObserver) -> None:
        self._observers = observers

    @property
    def is_on(self) -> bool:
        return bool(self._observers)

    def watch(
        self, path: str, message: object, context: Context
    ) -> AbstractContextManager[Call | None]:
        """Observe what the block does for a message of the method at `path`."""
        return self._watch(path, message, context) if self._observers else _NOBODY

    def watched(
        self, path: str, method: Callable[[Any, Context], Awaitable[Any]]
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        """The same method, observed."""

        async def answer(message: object, context: Context) -> object:
            with self._watch(path, message, context):
                return await method(message, context)

        return answer

    @contextmanager
    def _watch(self, path: str, message: object, context: Context) -> Iterator[Call]:
        _, service, method = path.split("/")
        model, version, request_id = _names(message)
        call = Call(service, method, time.monotonic(), model, version, request_id)
        metadata = context.invocation_metadata() or ()
        for observer in self._observers:
            observer.began(call, metadata)
        token = current_call.set(call)
        try:
            yield call
        except (asyncio.CancelledError, GeneratorExit):
            left_s = context.time_remaining()
            is_late = left_s is not None and left_s <= CLOCKS_APART_S
            note_status(StatusCode.DEADLINE_EXCEEDED if is_late else StatusCode.CANCELLED)
            raise
        except AttendantError as error:  # of a stream's request, whose error ends the stream
            note_status(INFERENCE_CODES[type(error)], details(error))
            raise
        finally:
            current_call.reset(token)
            call.finished_s = time.monotonic()
            for observer in self._observers:
                observer.ended(call)


def _names(message: Any) -> list[str]:  # noqa: ANN401 - of any class, or an error
    """Model, version and id, as far as a message has fields for them."""
    kind: Any = type(message)
    return [
        getattr(message, field)[:MAX_CHARACTERS] if field else "" for field in _name_fields(kind)
    ]


@functools.cache  # by types, of which there are as many as methods
def _name_fields(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 - a class of messages, or an error's
    descriptor = getattr(kind, "DESCRIPTOR", None)
    known = descriptor.fields_by_name if descriptor is not None else {}
    choices = ("model_name", "model", "name"), ("model_version", "version"), ("id",)
    return tuple(next((name for name in names if name in known), "") for names in choices)
