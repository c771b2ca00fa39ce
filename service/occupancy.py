"""Who is inside: a count to enter and leave, and to wait until nobody is left.

Lives on the event loop; no locks.
"""

import asyncio
from types import TracebackType


class Occupancy:
    """Counts what is under way; a `with` block is one."""

    def __init__(self) -> None:
        self.count = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def enter(self) -> None:
        self.count += 1
        self._empty.clear()

    def leave(self) -> None:
        self.count -= 1
        if not self.count:
            self._empty.set()

    async def wait_empty(self, timeout_s: float) -> bool:
        """Wait until nobody is inside; whether that came true in time."""
        try:
            await asyncio.wait_for(self._empty.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def __enter__(self) -> None:
        self.enter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
