"""Who is inside: counts calls in flight and refuses new ones while draining.

Lives on the event loop; no locks. Queues have their own bounds: this is the door.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from service.errors import Unavailable
from service.rpc.status import Context


class Admission:
    """The calls that must be answered before the process may end."""

    def __init__(self) -> None:
        self.is_draining = False
        self._num_inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def admit(self, context: Context) -> None:
        """Count a call in, or raise `Unavailable` while draining.

        It is counted out when the call is done: a large answer takes its time after the
        method has returned it, and closing the port would cut it off.
        """
        self._enter()
        context.add_done_callback(lambda _: self._leave())  # type: ignore[arg-type] # a function will do

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """The same for one request of a stream: counted while the block runs."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    async def drain(self, timeout_s: float) -> int:
        """Refuse new calls and wait for those inside; returns how many are left."""
        self.is_draining = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        return self._num_inside

    def _enter(self) -> None:
        if self.is_draining:
            raise Unavailable(
                "GRPC server is shutting down and has stopped accepting new requests."
            )
        self._num_inside += 1
        self._empty.clear()

    def _leave(self) -> None:
        self._num_inside -= 1
        if not self._num_inside:
            self._empty.set()
