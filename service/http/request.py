"""A request as handlers see it, and their reply: all that they know of HTTP."""

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import msgspec

from service.api.admission import Admission
from service.api.calls import Arrival, Calls, logged, note_end
from service.api.long_work import LONG_BYTES, LONG_PARTS, LONG_VALUES
from service.api.operations import Operations
from service.calls.record import Call
from service.errors import AttendantError, DeadlineExceeded, InvalidArgument
from service.http.body import Body, JsonBounds, check_json, decode_json
from service.http.status import ENDED_WELL, ENDS, Headers, HttpError, Writer, writer_of
from service.http.wire.connection import Connection, Exchange
from service.records import current_call
from service.serving.model import Caller
from service.settings import Settings

T = TypeVar("T")
TOGETHER_BYTES = 2**16  # of an answer that is copied, to be one write with its headers
MAX_REQUEST_ID = 128  # characters
LAST = re.compile(rb"(^|[,\s])u=7($|[,;\s])")  # the urgency of background work (RFC 9218)
JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer; a body of several pieces is written without joining them."""

    body: bytes | Sequence[bytes | memoryview] = b""
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = ()

    @classmethod
    def json(cls, value: Any, status: int = 200, headers: Headers = ()) -> "Reply":
        """An answer of plain values or of msgspec's records."""
        return cls(msgspec.json.encode(value), status, headers=headers)


class Port(Protocol):
    """The port of a request: what all of its requests share."""

    @property
    def settings(self) -> Settings: ...

    @property
    def admission(self) -> Admission: ...

    @property
    def calls(self) -> Calls: ...

    @property
    def operations(self) -> Operations: ...

    def answered(self, status: int) -> None:
        """Count an answer."""
        ...


class Begun(Protocol):
    """An answer that is sent piece by piece; `stream.py` has it."""

    async def fail(self, error: HttpError) -> None:
        """Tell an error that came after the first piece, and end."""
        ...

    def stop(self) -> None:
        """Send nothing more."""
        ...


class _NoExchange:
    """Stands in for an exchange where a request has no connection."""

    is_received = True
    has_left = is_over = has_begun = False

    def let_go(self) -> None:
        """No-op: a request without a connection holds no exchange."""


def own_scope(path: str) -> dict[str, Any]:
    """The scope of a request that the server makes itself."""
    return {
        "exchange": _NoExchange(),
        "method": "POST",
        "raw_path": path.encode(),
        "query_string": b"",
        "http_version": "1.1",
        "headers": [],
    }


class Request:
    """One request: its path, headers and body, and the ways to answer it."""

    __slots__ = (
        "_exchange",
        "_is_checked",
        "_is_long",
        "_scope",
        "_send",
        "body",
        "front",
        "headers",
        "is_background",
        "method",
        "named",
        "parameters",
        "path",
        "receive",
        "received_s",
        "reply_headers",
        "request_id",
        "stream",
        "writer",
    )

    def __init__(
        self,
        front: Port,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        self.front = front
        self.received_s = time.monotonic()
        self._scope, self.receive, self._send = scope, receive, send
        self._exchange: Exchange = scope["exchange"]
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("ascii")
        # Names in lowercase; of several of a name the first, as gRPC's.
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        # Whether it is answered only while no other request waits.
        self.is_background = LAST.search(self.headers.get(b"priority", b"")) is not None
        self.parameters: dict[str, str] = {}  # of the path, by name
        self.body: Body = b""
        self._is_checked = False  # whether its parts are counted
        self._is_long = False  # whether it has many parts
        self.request_id = _request_id(self.headers.get(b"x-request-id"))
        self.reply_headers: Headers = ((b"x-request-id", self.request_id.encode()),)
        self.writer: Writer = writer_of(self.path)  # of errors
        # The error of a call in the words of the body, whose names may be others.
        self.named: Callable[[InvalidArgument], InvalidArgument] = _itself
        self.stream: Begun | None = None  # once it is answered by one

    @property
    def connection(self) -> Connection:
        return self._exchange.connection

    def header(self, name: str) -> str:
        """The value of a header, its name in lowercase; nothing where it is absent."""
        return self.headers.get(name.encode(), b"").decode("latin-1")

    @property
    def query(self) -> str:
        return str(self._scope["query_string"].decode("latin-1"))

    @property
    def num_hosts(self) -> int:
        return sum([name == b"host" for name, _ in self._scope["headers"]])

    @property
    def http_version(self) -> str:
        return str(self._scope["http_version"])

    @property
    def is_received(self) -> bool:
        """Whether the body is there, as far as it was not taken yet."""
        return self._exchange.is_received

    @property
    def has_left(self) -> bool:
        """Whether the client is gone."""
        return self._exchange.has_left

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to answer any more: the client is gone, or was refused."""
        return self._exchange.is_over

    @property
    def has_begun(self) -> bool:
        """Whether an answer is on its way, or there is no one to answer."""
        return self._exchange.has_begun

    async def json(self, kind: type[T]) -> T:
        """The body as a record of msgspec's. Raises `HttpError`, and what admission raises."""
        await self.check_json()
        return await self.work(lambda: decode_json(self.body, kind))

    async def check_json(self, *, has_files: bool = False) -> None:
        """Count the parts of the body, once, and admit their memory; files are long texts."""
        if self._is_checked:
            return
        bounds = JsonBounds.of(self.front.settings, has_files=has_files)
        parts = await self.work(lambda: check_json(self.body, bounds))
        self._is_checked, self._is_long = True, parts.count > LONG_PARTS
        self.front.admission.take_memory(parts.memory_bytes)

    async def work(self, work: Callable[[], T]) -> T:
        """The result of work on the body: on another thread where it is long."""
        is_long = self._is_long or len(self.body) > LONG_BYTES
        return await self.front.admission.run_long(work) if is_long else work()

    async def answer(self, make: Callable[[], Any], num_values: int) -> "Reply":
        """An answer of JSON, made on another thread where it has many values."""
        if num_values <= LONG_VALUES:
            return Reply.json(make())
        return await self.front.admission.run_long(lambda: Reply.json(make()))

    @property
    def caller(self) -> Caller:
        """The caller of an operation; HTTP tells no deadline."""
        return Caller(self.received_s)

    async def ask(self, path: str, message: Any, *more: Any, caller: Caller | None = None) -> Any:
        """The answer of the operation at a path, observed; `more` is what its kind takes beside.

        A record is answered by a record, a message by a message. Raises the errors of the domain.
        """
        calls, operation = self.front.calls, self.front.operations[path]
        if self.is_background and isinstance(message, Call):
            message = message.in_background()
        caller = caller or self.caller
        call: Callable[..., Awaitable[Any]] = operation.call
        if not isinstance(message, msgspec.Struct):
            call = operation.stream if more else operation.answer
        if not calls.is_on:
            return await call(message, caller, *more)
        with calls.watch(path, message, self.arrival):
            self.name_call()
            try:
                answer = await call(message, caller, *more)
            except AttendantError as error:
                note_end(ENDS[type(error)], logged(error))
                raise
            except Exception as error:
                note_end(ENDS[Exception], str(error))
                raise
            note_end(ENDED_WELL)
            return answer

    @property
    def arrival(self) -> Arrival:
        """The data of the call for observers."""
        metadata = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in self.headers.items()
        ]
        return Arrival("http", ENDS, metadata, lambda: None)

    def name_call(self) -> None:
        """Give the record of the call the request's id, where its message has none."""
        call = current_call.get()
        if call is not None and not call.request_id:
            call.request_id = self.request_id

    async def reply(self, reply: Reply) -> None:
        """Send a whole answer, and wait until the client has taken it."""
        pieces = [reply.body] if isinstance(reply.body, bytes) else list(reply.body)
        num_bytes = sum(map(len, pieces))
        self.front.admission.hold(num_bytes)
        headers = [*self.reply_headers, *reply.headers]
        if reply.status not in (204, 304):  # of which there is nothing to tell
            headers += [
                (b"content-type", reply.content_type),
                (b"content-length", b"%d" % num_bytes),
            ]
        self.front.answered(reply.status)
        if not self.is_received:  # what is left of the body has no bound any more
            self._exchange.last()
        await self.until_taken()
        if num_bytes <= TOGETHER_BYTES:
            await self._exchange.send_together(
                _start(reply.status, headers),
                {"type": "http.response.body", "body": b"".join(pieces)},
            )
        else:
            await self.start(reply.status, headers)
            *first, last = pieces
            for piece in first:
                await self.write(piece)
            await self.write(last, has_more=False)
        await self.until_taken()

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send(_start(status, headers))

    async def write(self, piece: bytes | memoryview, *, has_more: bool = True) -> None:
        """Write a piece once the client has taken enough of those before; one write each."""
        await self.until_taken()
        await self._send({"type": "http.response.body", "body": piece, "more_body": has_more})

    def let_go(self) -> None:
        """End what the request holds, and the circles in which it is referred to."""
        if self.stream is not None:
            self.stream.stop()
            self.stream = None
        self._exchange.let_go()

    def abort(self) -> None:
        """End the connection at once: what was sent of an answer cannot be ended properly."""
        self._exchange.abort()

    def send_aside(self, chunk: bytes) -> bool:
        """Write a chunk that is no part of the answer; whether there is still a connection."""
        return self._exchange.send_aside(chunk)

    async def until_taken(self) -> None:
        """Wait for a client that reads slowly. Raises `DeadlineExceeded` after the limit."""
        timeout_s = self.front.settings.send_timeout_s
        try:
            await self._exchange.until_taken(timeout_s)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"an answer was not read for {timeout_s:g} s, which is the limit"
            ) from error


def _itself(error: InvalidArgument) -> InvalidArgument:
    return error


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _request_id(given: bytes | None) -> str:
    """The caller's id, if it can be told again, or a new one."""
    if given is not None and len(given) <= MAX_REQUEST_ID:
        text = given.decode("latin-1")
        if text.isascii() and text.isprintable() and text:
            return text
    return uuid4().hex
