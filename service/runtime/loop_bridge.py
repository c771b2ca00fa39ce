"""The crossing between the event loop, where an engine's clients wait, and the engine's threads.

Clients and their timers are the event loop's own. `post` and `report_broken` may be called on any
thread; when the loop is closed nothing waits any more, and they do nothing.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from math import inf
from typing import Generic, TypeVar

from service.errors import AttendantError

Request = TypeVar("Request", bound=Hashable)
Client = TypeVar("Client")


class Crossing(Generic[Request, Client]):
    """An engine's threads, and the clients on the event loop that its answers go to."""

    def __init__(self, on_broken: Callable[[], None]) -> None:
        self.failure: AttendantError | None = None  # why the model serves no more
        self.clients: dict[Request, Client] = {}  # event loop only
        self._timers: dict[Request, list[asyncio.TimerHandle]] = {}  # the same
        self._threads: list[threading.Thread] = []
        self._on_broken = on_broken  # called on the event loop
        self._loop = asyncio.get_running_loop()

    @property
    def num_threads(self) -> int:
        return len(self._threads)

    def start(self, name: str, work: Callable[..., None], *args: object) -> None:
        """Work on a thread of its own, which does not keep the process."""
        thread = threading.Thread(target=work, args=args, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, timeout_s: float) -> bool:
        """Whether all threads ended, within so long; blocks meanwhile."""
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # On the event loop.

    def enter(self, request: Request, client: Client) -> None:
        """Take a client in, until it leaves."""
        self.clients[request] = client

    def at(
        self, due_s: float | None, request: Request, call: Callable[..., None], *args: object
    ) -> None:
        """Call back when a moment comes, unless the request's client has left by then."""
        if due_s is not None and due_s != inf:
            timer = self._loop.call_later(due_s - time.monotonic(), call, *args)
            self._timers.setdefault(request, []).append(timer)

    def leave(self, request: Request) -> None:
        """Let a client go, and its timers."""
        self.clients.pop(request, None)
        for timer in self._timers.pop(request, ()):
            timer.cancel()

    # On any thread.

    def post(self, call: Callable[..., None], *args: object) -> None:
        """Call on the event loop, soon."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, *args)

    def report_broken(self) -> None:
        """Say on the event loop that the engine serves no more."""
        self.post(self._on_broken)
