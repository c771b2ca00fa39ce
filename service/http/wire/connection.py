"""One connection: uvicorn's protocol on httptools, with bounds on what a client may make of it.

uvicorn knows how requests follow each other, are framed and answered. It has no bound on headers or
their time, keeps a request going whose client has left, and answers unreadable requests amid other
answers: that is added here. The bounds of bodies are in `body.py`. Lives on the event loop.

What is borrowed of uvicorn beside its promises, in this file alone, so its version is bound in
pyproject.toml: the protocol's callbacks, `_start_asgi_task` and `_unset_keepalive_if_required`, its
attributes `cycle`, `pipeline`, `flow`, `headers`, `url` and `parser`; and of a cycle, which is one
request with its answer, `more_body`, `disconnected`, `response_started`, `response_complete` and
`keep_alive`, of which some are set here, and `transport`, which is exchanged for a moment.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from service.http.status import HttpError, Writer, writer_of
from service.http.wire.framing import body_head, check_transfer_coding, new_parser, with_target_host
from service.settings import Settings

LINGER_S = 2.0  # for a client to read why its connection ends, before that is cut
MAX_DISCARDED_BYTES = 2**24  # that it may send meanwhile
MAX_PIPELINED = 32  # requests that came before the one ahead of them was answered
FRAMES_PER_BYTE = 8  # bytes of framing, at most, beside a header's worth: chunks of one byte have 6
# Nothing of ours is meant to be read by a page of another site, or guessed at by a browser.
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
UNREADABLE = "the request is no HTTP/1.1 that this server reads"


class _Collected:
    """Stands in for a transport while an answer is put together."""

    __slots__ = ("is_closed", "written")

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def close(self) -> None:
        self.is_closed = True


class Exchange:
    """One request on a connection, with its answer."""

    __slots__ = ("_cycle", "connection")

    def __init__(self, connection: "Connection", cycle: RequestResponseCycle) -> None:
        self.connection = connection
        self._cycle = cycle

    @property
    def is_received(self) -> bool:
        """Whether the body is there, as far as it was not taken yet."""
        return not self._cycle.more_body

    @property
    def has_left(self) -> bool:
        """Whether the client is gone."""
        return self._cycle.disconnected

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to answer any more: the client is gone, or was refused."""
        return self._cycle.disconnected or self._cycle.response_complete

    @property
    def has_begun(self) -> bool:
        """Whether an answer is on its way, or there is no one to answer."""
        return self._cycle.response_started or self._cycle.disconnected

    def last(self) -> None:
        """End the connection with this answer."""
        self._cycle.keep_alive = False

    def abort(self) -> None:
        """End the connection at once: what was sent of an answer cannot be ended properly."""
        self._cycle.disconnected = True
        self.connection.transport.abort()

    def let_go(self) -> None:
        """End the circle in which the request is referred to."""
        self._cycle.scope.pop("exchange")  # type: ignore[typeddict-item]

    async def send_together(self, *messages: Any) -> None:  # noqa: ANN401 - ASGI's
        """Send a small answer as one write, so that it is one packet; uvicorn makes two."""
        transport, collected = self.connection.transport, _Collected()
        self._cycle.transport = collected  # type: ignore[assignment]
        try:
            for message in messages:
                await self._cycle.send(message)
        finally:
            self._cycle.transport = transport
        if collected.written:
            transport.write(b"".join(collected.written))
        if collected.is_closed:
            transport.close()

    def send_aside(self, chunk: bytes) -> bool:
        """Write a chunk of the body that is no part of the answer; whether there is a connection.

        It is left out where the client has yet to take what was written before.
        """
        if self.connection.transport.is_closing():
            return False
        if not self.connection.flow.write_paused:
            self.connection.transport.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        return True

    async def until_taken(self, timeout_s: float) -> None:
        """Wait for a client that reads slowly. Raises `TimeoutError`, after which it is cut off."""
        flow = self.connection.flow
        if not flow.write_paused or self.has_left:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await flow.drain()
        except TimeoutError:
            self.abort()
            raise


@dataclass(slots=True, eq=False)
class Connections:
    """State that all connections of one port share."""

    settings: Settings
    config: Config
    answered: Callable[[int], None]  # counts an answer by its status
    state: ServerState = field(default_factory=ServerState)
    is_leaving: bool = False  # answers are the last of their connections
    _dated_s: int = 0

    @classmethod
    def of(
        cls, settings: Settings, app: Callable[..., Any], answered: Callable[[int], None]
    ) -> "Connections":
        """The connections of a port that an ASGI application answers."""
        config = Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=settings.http_keepalive_s,  # type: ignore[arg-type] # of any kind
        )
        config.load()
        return cls(settings, config, answered)

    @property
    def all(self) -> "list[Connection]":
        return [each for each in self.state.connections if isinstance(each, Connection)]

    def new(self) -> "Connection":
        return Connection(self)

    @property
    def has_room(self) -> bool:
        return len(self.state.connections) <= self.settings.max_connections

    def date(self) -> None:
        """Keep the headers of every answer up to date."""
        now_s = int(time.time())
        if now_s != self._dated_s:
            self._dated_s = now_s
            date = (b"date", formatdate(now_s, usegmt=True).encode())
            self.state.default_headers = [date, *SECURITY_HEADERS]


class Connection(HttpToolsProtocol):
    """A client's connection; `running` is the task that answers its request."""

    def __init__(self, shared: Connections) -> None:
        super().__init__(shared.config, shared.state, {})
        self.shared = shared
        self.running: asyncio.Task[None] | None = None
        self._made_s = self.loop.time()
        self._is_over = False  # nothing more is read
        self._phase = "idle"  # or head, body: what the next byte belongs to
        self._num_begun = 0
        # Bytes of a head, or of a body with its framing; pieces in which it began are left out, as
        # nothing tells where, or the body ended.
        self._num_read = 0
        self._num_body = 0
        self._num_trailing = 0
        # The parser stops at a head that asks for another protocol. None is spoken here, so another
        # one reads on behind it, and is first told how the body is framed.
        self._has_stopped = False
        self._is_telling = False
        self._late: asyncio.TimerHandle | None = None
        self._cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self.shared.has_room:
            self._is_over = True
            transport.close()
            return
        self._limit_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.pipeline.clear()
        for timer in (self._late, self._cut, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        if self.running is not None:
            self.running.cancel()

    def eof_received(self) -> None:
        """A client that sends no more has left: it could not be told from one that is gone."""

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            self._num_trailing += len(data)
            if self._num_trailing > MAX_DISCARDED_BYTES:
                self.transport.abort()
            return
        num_begun, phase = self._num_begun, self._phase
        self._num_read += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(memoryview(data))
        except httptools.HttpParserError:
            if not self._is_over:
                self.refuse(HttpError(400, UNREADABLE))
        if self._is_over:
            return
        if self._num_begun != num_begun:  # some of this piece was of another
            self._num_read = len(data) if self._phase == "head" and phase == "idle" else 0
        elif self._phase != phase:
            self._num_read = 0
        self._check_size()
        if self._phase == "body":
            self._unlimit_head()
        elif self._late is None and (self._phase == "head" or not self.is_busy):
            self._limit_head()

    def _parse(self, rest: memoryview) -> None:
        """Read the bytes. Raises `httptools.HttpParserError`."""
        while not self._is_over:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as stopped:
                if not self._has_stopped:  # at a tunnel: what follows is no HTTP
                    self.last()
                    return
                rest = rest[stopped.args[0] :]
                self._read_on()
            else:
                return

    def _read_on(self) -> None:
        """Read what follows as if no other protocol had been asked for (RFC 9110, 7.8)."""
        head = body_head(self.headers, is_last=not self.parser.should_keep_alive())
        self.parser = new_parser(self)
        self._has_stopped, self._is_telling = False, True
        self.parser.feed_data(head)  # without a body the message is complete with it

    def on_message_begin(self) -> None:
        if self._is_telling:
            return
        super().on_message_begin()
        self._phase, self._num_begun = "head", self._num_begun + 1
        self._num_body = 0

    def on_url(self, url: bytes) -> None:
        if not self._is_telling:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        # A trailer means nothing here.
        if self._phase == "head" and not self._is_telling:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_telling:
            self._is_telling = False
            return
        if self._is_over:
            return
        limit = self.shared.settings.http_max_header_bytes
        num_bytes = len(self.url) + sum([len(n) + len(v) + 4 for n, v in self.headers])
        if num_bytes > limit:
            self._refuse_head()
            return
        try:
            check_transfer_coding(self.headers)
            self.headers[:] = with_target_host(self.url, self.headers)
        except HttpError as error:
            self.refuse(error)
            return
        self._has_stopped = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        self._phase = "body"
        self._unlimit_head()
        self.shared.date()
        if len(self.pipeline) >= MAX_PIPELINED:
            self.last()
            self._is_over = True
            return
        super().on_headers_complete()
        age_s = self.loop.time() - self._made_s
        if self.shared.is_leaving or age_s > self.shared.settings.max_connection_age_s:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if not self._is_over:
            self._num_body += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_over and not self._has_stopped:
            self._phase = "idle"
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: object) -> None:
        cycle.scope["exchange"] = Exchange(self, cycle)  # type: ignore[typeddict-unknown-key]
        super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]

    def _unsupported_upgrade_warning(self) -> None:
        """No line of the log for what any client may ask."""

    def send_400_response(self, msg: str) -> None:
        self.refuse(HttpError(400, msg))

    @property
    def is_busy(self) -> bool:
        """Whether a request has no whole answer yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def last(self) -> None:
        """End the connection with the last of the answers that are due."""
        if self.cycle is not None:  # the newest: those before it are answered first
            self.cycle.keep_alive = False

    def refuse(self, error: HttpError, writer: Writer | None = None) -> None:
        """End the connection with an error in answer to what is being read.

        Where an answer has begun, or others are due before, it ends after those.
        """
        self._is_over = True
        self._unlimit_head()
        is_reading = self._phase == "body" and not self.pipeline
        if self.is_busy and not (is_reading and not self.cycle.response_started):
            self.last()
            if self._phase == "body" and self.cycle.more_body:
                self.transport.close()  # it is read while it is answered: neither can go on
            return
        if self.is_busy:
            self.cycle.response_started = self.cycle.response_complete = True
        writer = writer or writer_of(getattr(self, "url", b"").decode("latin-1"))
        status, body, headers = writer.error(error)
        self._write_last(status, body, headers)
        if self.running is not None and self.running is not asyncio.current_task(self.loop):
            self.running.cancel()

    def _write_last(self, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Answer, and read on for a moment: a socket that is closed with bytes unread is reset."""
        self.shared.date()
        fields = (
            *self.shared.state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *headers,
        )
        head = [STATUS_LINE[status], *(b"%s: %s\r\n" % pair for pair in fields), b"\r\n"]
        self.transport.write(b"".join([*head, body]))
        self.shared.answered(status)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            with suppress(OSError):  # the client has reset the connection
                self.transport.write_eof()
        else:
            self.transport.close()
        self._cut = self.loop.call_later(LINGER_S, self.transport.abort)

    def _check_size(self) -> None:
        limit = self.shared.settings.http_max_header_bytes
        if self._phase == "head" and self._num_read > limit:
            self._refuse_head()
        if self._phase == "body" and self._num_read > limit + FRAMES_PER_BYTE * self._num_body:
            self.refuse(HttpError(400, "the body has more framing than content"))

    def _refuse_head(self) -> None:
        limit = self.shared.settings.http_max_header_bytes
        text = f"the request's line and headers have more than {limit} bytes"
        self.refuse(HttpError(431, text, code="request_too_large"))

    def _limit_head(self) -> None:
        timeout_s = self.shared.settings.http_header_timeout_s
        self._late = self.loop.call_later(timeout_s, self._head_is_late, timeout_s)

    def _unlimit_head(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _head_is_late(self, timeout_s: float) -> None:
        self._late = None
        if self._num_begun == 0 and not self._num_read:
            self.transport.close()
            return
        text = f"the request's headers were not there after {timeout_s:g} s"
        self.refuse(HttpError(408, text, code="timeout"))
