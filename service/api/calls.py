"""Reports every request to observers: its beginning and its end, whichever front it came through.

Without observers no method is wrapped and no record made. A request of `ModelStreamInfer` counts
like a call of its own; probes, health and reflection calls are not recorded.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from service.errors import AttendantError, InvalidArgument
from service.records import ObservedCall, current_call

MAX_CHARACTERS = 256  # of a name that came from a client
# The text of an error travels in a header: over 8 KiB, percent-encoded as three bytes for one,
# clients of gRPC get another error instead.
MAX_DETAILS_BYTES = 2_000
INTERNAL_ERROR = "internal error, see the server's log"
WATCHED = ("/inference.", "/attendant.")  # our own services
CLOCKS_APART_S = 0.1  # a client's deadline passes this much before ours at most, and it leaves
_NOBODY = nullcontext()
# The number and the name of a call's end, by the kind of what ended it: an error of the domain,
# `CancelledError` for a client that left, `TimeoutError` for a deadline, `Exception` for the rest.
# The names are gRPC's at every front, so that logs and traces have one vocabulary.
Ends: TypeAlias = Mapping[type[BaseException], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A front's data of a call for its observers."""

    protocol: str  # grpc or http
    ends: Ends
    metadata: Iterable[tuple[str, str | bytes]]
    time_remaining: Callable[[], float | None]  # seconds until the caller's deadline


class CallObserver(Protocol):
    """An observer of requests; called on the event loop, and must not raise."""

    def began(self, call: ObservedCall, metadata: Iterable[tuple[str, str | bytes]]) -> None: ...

    def ended(self, call: ObservedCall) -> None: ...


class Calls:
    """The observers of one server."""

    def __init__(self, *observers: CallObserver) -> None:
        self._observers = observers

    @property
    def is_on(self) -> bool:
        return bool(self._observers)

    def watch(
        self, path: str, message: object, arrival: Arrival
    ) -> AbstractContextManager[ObservedCall | None]:
        """Observe what the block does for a message of the method at `path`."""
        return self._watch(path, message, arrival) if self._observers else _NOBODY

    @contextmanager
    def _watch(self, path: str, message: object, arrival: Arrival) -> Iterator[ObservedCall]:
        _, service, method = path.split("/")
        model, version, request_id = _names(message)
        call = ObservedCall(service, method, time.monotonic(), model, version, request_id)
        call.protocol = arrival.protocol
        for observer in self._observers:
            observer.began(call, arrival.metadata)
        token = current_call.set(call)
        try:
            yield call
        except (asyncio.CancelledError, GeneratorExit):
            left_s = arrival.time_remaining()
            is_late = left_s is not None and left_s <= CLOCKS_APART_S
            note_end(arrival.ends[TimeoutError if is_late else asyncio.CancelledError])
            raise
        except AttendantError as error:  # of a stream's request, whose error ends the stream
            note_end(arrival.ends[type(error)], logged(error))
            raise
        finally:
            current_call.reset(token)
            call.finished_s = time.monotonic()
            for observer in self._observers:
                observer.ended(call)


def note_end(end: tuple[int, str], text: str = "") -> None:
    """Note how this task's request ended in its record, if there is one."""
    call = current_call.get()
    if call is not None:
        (call.code, call.status), call.error = end, text


def details(error: AttendantError) -> str:
    """The error's text for the client, cut if it is too long for a header."""
    text = str(error).encode()
    cut = text[:MAX_DETAILS_BYTES].decode(errors="ignore")
    return cut if len(text) <= MAX_DETAILS_BYTES else f"{cut}..."


def logged(error: AttendantError) -> str:
    """The error's text for logs and traces: the client's, but where that has parts of a request."""
    if isinstance(error, InvalidArgument) and error.logged is not None:
        return error.logged
    return details(error)


def _names(message: object) -> list[str]:  # of any class, or an error
    """Model, version and id, as far as a message or a record has fields for them."""
    kind: Any = type(message)
    return [
        getattr(message, field)[:MAX_CHARACTERS] if field else "" for field in _name_fields(kind)
    ]


@functools.cache  # by types, of which there are as many as methods
def _name_fields(kind: object) -> tuple[str, ...]:  # a class of any kind
    descriptor = getattr(kind, "DESCRIPTOR", None)
    records = getattr(kind, "__struct_fields__", ())
    known = descriptor.fields_by_name if descriptor is not None else records
    choices = ("model_name", "model", "name"), ("model_version", "version"), ("id",)
    return tuple(next((name for name in names if name in known), "") for names in choices)
