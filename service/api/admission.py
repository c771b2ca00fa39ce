"""Counts calls and bytes in flight, and refuses calls beyond the bounds.

Calls that gRPC accepts are answered, also while the server drains: its ports are closed then.

Lives on the event loop; no locks. Queues have their own bounds. It is also where the server's
services read in what state the process is, see `app.py`.

`rpc/messages.py` notes how large each message was as it came. The note is a variable of the
call's task, and of the tasks that it starts, so that a request of a stream is admitted with its own
size. So is the call's `Stay`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from service.api.long_work import LongWork
from service.errors import InvalidArgument, Overloaded, Unavailable
from service.observe.server import Bound
from service.runtime.background import release_freed_memory
from service.serving.occupancy import Occupancy
from service.settings import Settings

T = TypeVar("T")
SHUTTING_DOWN = "GRPC server is shutting down and has stopped accepting new requests."
# Of messages that came and went. gRPC has them in pieces of some kilobytes, between which others
# are allocated: after a free, glibc returns them to the system only on request.
GIVE_BACK_BYTES = 2**24
GIVE_BACK_AFTER_S = 0.05  # a call counts as ended a little before gRPC frees what it has of it
message_bytes: ContextVar[int] = ContextVar("bytes of the message that was read last", default=0)


@dataclass(slots=True, eq=False)
class Stay:
    """One call, until its status is sent."""

    num_bytes: int = 0  # of requests and answers, that it lets go of then
    num_admitted: int = 0  # how often it was counted in


current_stay: ContextVar[Stay | None] = ContextVar("the call of this task", default=None)


class Admission:
    """The calls that must be answered before the process may end."""

    def __init__(self, settings: Settings) -> None:
        self.is_live = True  # False: only a restart of the process may help
        self.is_leaving = False  # no longer ready; calls are admitted until it drains
        self.is_draining = False  # True: the ports are closed, and open streams are to end
        self.max_stream_requests = settings.max_stream_requests
        self.refusals: Counter[Bound] = Counter()
        self.num_bytes = 0  # of requests, and of answers that are not read yet
        self._num_released = 0  # bytes, since freed memory was given back
        self._inside = Occupancy()
        self.whole_calls = Occupancy()  # in flight, that send their answer and status as one
        self._max_bytes = settings.max_bytes_in_flight
        self.send_timeout_s = settings.send_timeout_s
        self._closing = asyncio.Event()
        self._released = asyncio.Event()
        self._released.set()
        self._on_drain: set[Callable[[], object]] = set()
        self._long_work = LongWork()

    def admit(self, num_beside: int = 0) -> None:
        """Count a call in, or raise `Overloaded` beyond the bound.

        `num_beside` are bytes that it takes besides its message's: from shared memory, or of
        images that are to be decoded.

        It is counted out when the call is done: a large answer takes its time after the
        method has returned it, and closing the port would cut it off.
        """
        stay = current_stay.get()
        assert stay is not None, "probes are not admitted, and all other calls have a stay"
        stay.num_bytes += self._enter(num_beside)
        stay.num_admitted += 1

    def take(self, num_bytes: int) -> None:
        """Count bytes of a call's request as they come, until it is done, or raise `Overloaded`."""
        stay = current_stay.get()
        assert stay is not None, "a front that reads piece by piece has made one"
        self._take(num_bytes)
        stay.num_bytes += num_bytes

    def take_memory(self, num_bytes: int) -> None:
        """Count the memory of a request beside its bytes, or raise `Overloaded` beside others.

        A request alone is taken whatever it needs, as its parts are bounded.
        """
        stay = current_stay.get()
        num_taken = 0 if stay is None else stay.num_bytes
        self.take(max(0, min(num_bytes, self._max_bytes - num_taken)))

    async def run_long(self, work: Callable[[], T]) -> T:
        """The result of the work on a long message, which another thread does.

        The call's bytes are held until it is done, though its client has left.
        """
        stay = current_stay.get()
        num_bytes = 0 if stay is None else stay.num_bytes
        return await self._long_work.run(work, lambda work: self._hold_until(work, num_bytes))

    def _hold_until(self, work: "Future[Any]", num_bytes: int) -> None:
        loop = asyncio.get_running_loop()
        self.num_bytes += num_bytes

        def release(_: object) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._release, num_bytes)

        work.add_done_callback(release)

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Admission of one request of a stream, which is counted while the block runs."""
        num_bytes = self._enter()
        try:
            yield
        finally:
            self._leave(num_bytes)

    @contextmanager
    def taking(self, num_shared: int) -> Iterator[None]:
        """Count the bytes that a request takes from shared memory, once they are known."""
        self._take(num_shared)
        try:
            yield
        finally:
            self._release(num_shared)

    def hold(self, num_bytes: int) -> None:
        """Count an answer, too, until its call is done: when the client has read it, or is gone.

        It is never refused; the requests after it are. Those of probes are too small to count.
        """
        stay = current_stay.get()
        if stay is not None:
            stay.num_bytes += num_bytes
            self.num_bytes += num_bytes

    def let_go(self, stay: Stay) -> None:
        """The call is done."""
        self._release(stay.num_bytes)
        for _ in range(stay.num_admitted):
            self._inside.leave()

    def hold_until(self, work: "asyncio.Future[Any]") -> None:
        """Count a call's request for as long as it is worked on, though its client has left."""
        num_bytes = message_bytes.get()
        self.num_bytes += num_bytes
        work.add_done_callback(lambda _: self._release(num_bytes))

    def close(self) -> None:
        """Stop answering: open streams are to end."""
        self._closing.set()

    async def end_when_closed(self) -> None:
        """Wait for the server's end, then raise `Unavailable`, which ends a stream."""
        await self._closing.wait()
        raise Unavailable(SHUTTING_DOWN)

    @property
    def is_holding(self) -> bool:
        """Whether answers are to wait until they are released."""
        return not self._released.is_set()

    async def until_released(self) -> None:
        await self._released.wait()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """No answer leaves while the block runs; so clients that wait for one ask nothing new."""
        self._released.clear()
        try:
            yield
        finally:
            self._released.set()

    @contextmanager
    def on_drain(self, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` once the server drains, if that comes while the block runs."""
        if self.is_draining:
            end()
        self._on_drain.add(end)
        try:
            yield
        finally:
            self._on_drain.discard(end)

    async def drain(self, timeout_s: float) -> None:
        """Let streams end, and wait for those inside; `num_inside` tells how many are left."""
        self.is_leaving = self.is_draining = True
        for end in list(self._on_drain):
            self.refusals["draining"] += 1
            end()
        await self._inside.wait_empty(timeout_s)

    def _enter(self, num_beside: int = 0) -> int:
        num_bytes = message_bytes.get() + num_beside
        self._take(num_bytes)
        self._inside.enter()
        return num_bytes

    def _take(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise InvalidArgument(
                f"the request has {num_bytes} bytes, "
                f"the server takes at most {self._max_bytes} in flight"
            )
        if self.num_bytes + num_bytes > self._max_bytes:
            self.refusals["bytes"] += 1
            raise Overloaded(f"Exceeds maximum of {self._max_bytes} bytes in flight")
        self.num_bytes += num_bytes

    def _release(self, num_bytes: int) -> None:
        self.num_bytes -= num_bytes
        self._num_released += num_bytes
        if self._num_released >= GIVE_BACK_BYTES:
            self._num_released = 0
            loop = asyncio.get_running_loop()
            loop.call_later(GIVE_BACK_AFTER_S, loop.run_in_executor, None, release_freed_memory)

    def _leave(self, num_bytes: int) -> None:
        self._release(num_bytes)
        self._inside.leave()

    @property
    def num_inside(self) -> int:
        return self._inside.count
