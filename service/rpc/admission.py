"""Who is inside: counts calls in flight and refuses new ones while draining.

Lives on the event loop; no locks. Queues have their own bounds: this is the door.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from service.errors import Unavailable


class Admission:
    """The calls that must be answered before the process may end."""

    def __init__(self) -> None:
        self.is_draining = False
        self._num_inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a call in and out, or raise `Unavailable` while draining."""
        if self.is_draining:
            raise Unavailable(
                "GRPC server is shutting down and has stopped accepting new requests."
            )
        self._num_inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._num_inside -= 1
            if not self._num_inside:
                self._empty.set()

    async def drain(self, timeout_s: float) -> int:
        """Refuse new calls and wait for those inside; returns how many are left."""
        self.is_draining = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        return self._num_inside
