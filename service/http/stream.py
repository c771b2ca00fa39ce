"""Answers piece by piece: server-sent events, or lines of JSON.

An event is one write, and waits until the client has taken enough of those before: there is no
queue beside the transport's buffer, and what a slow client misses is merged where it is made
(`generation/stream.py`). The status leaves with the first event, so that what is refused before is
refused as any request. While nothing is to say, a comment says that the connection lives.
"""

import asyncio
from collections.abc import Callable
from typing import Literal, TypeAlias

from service.http.request import Request
from service.http.status import OPENAI, HttpError

Form: TypeAlias = Literal["events", "named events", "lines"]
CONTENT_TYPES: dict[Form, bytes] = {
    "events": b"text/event-stream; charset=utf-8",
    "named events": b"text/event-stream; charset=utf-8",
    "lines": b"application/x-ndjson",
}
DONE = b"[DONE]"
_PING = b": ping\n\n"


class Stream:
    """The answer of one request, begun by its first event."""

    def __init__(
        self,
        request: Request,
        form: Form = "events",
        *,
        says_done: bool = False,
        failing: Callable[[HttpError], bytes] | None = None,
    ) -> None:
        """`failing` makes the last event of an error, where it is no body of one."""
        self._request, self._failing = request, failing
        self._form: Form = form
        self._says_done = says_done  # [DONE] at the end, as OpenAI's clients wait for
        self._has_begun = False
        self._is_over = False
        self._heartbeat: asyncio.TimerHandle | None = None

    async def send(self, data: bytes) -> None:
        """One event: a line, or the lines of a named one.

        Raises `DeadlineExceeded` where the client does not read.
        """
        if not self._has_begun:
            await self._begin()
        self._beat()
        await self._request.write(self._framed(data))

    async def end(self) -> None:
        """The end of the answer; the status leaves here if nothing was sent."""
        if not self._has_begun:
            await self._begin()
        await self._finish(self._framed(DONE) if self._says_done else b"")

    async def fail(self, error: HttpError) -> None:
        """Tell an error that came after the first event, and end."""
        if self._failing is not None:
            await self._finish(self._framed(self._failing(error)))
            return
        _, body, _ = (OPENAI if self._says_done else self._request.writer).error(error)
        done = self._framed(DONE) if self._says_done else b""
        await self._finish(self._framed(body) + done)

    def stop(self) -> None:
        """Stop the heartbeat; later writes are ignored."""
        self._is_over = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()

    async def _begin(self) -> None:
        self._has_begun = True
        request = self._request
        request.stream = self
        request.front.answered(200)
        headers = [
            (b"content-type", CONTENT_TYPES[self._form]),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            *request.reply_headers,
        ]
        await request.start(200, headers)
        self._beat()

    async def _finish(self, last: bytes) -> None:
        if self._is_over:
            return
        self.stop()
        if last:
            await self._request.write(last)
        await self._request.write(b"", has_more=False)
        await self._request.until_taken()

    def _framed(self, data: bytes) -> bytes:
        match self._form:
            case "events":
                return b"data: " + data + b"\n\n"
            case "named events":
                return data + b"\n\n"
        return data + b"\n"

    def _beat(self) -> None:
        """Start the time to the next comment anew."""
        if self._form == "lines":
            return
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        interval_s = self._request.front.settings.http_heartbeat_s
        loop = asyncio.get_running_loop()
        self._heartbeat = loop.call_later(interval_s, self._ping)

    def _ping(self) -> None:
        if not self._is_over and self._request.send_aside(_PING):
            self._beat()
