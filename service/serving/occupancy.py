"""Counts the users of a model and waits for zero.

Lives on the event loop; no locks.
"""

import asyncio


class Occupancy:
    """Counts what is under way; a `with` block is one."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Event] = set()  # for it to be empty once

    def enter(self) -> None:
        self.count += 1

    def leave(self) -> None:
        self.count -= 1
        if not self.count:
            for empty in self._waiting:
                empty.set()

    async def wait_empty(self, timeout_s: float) -> bool:
        """Wait until there are no users; whether that was reached in time."""
        if not self.count:
            return True
        empty = asyncio.Event()
        self._waiting.add(empty)
        try:
            await asyncio.wait_for(empty.wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(empty)
        return True

    def __enter__(self) -> None:
        self.enter()

    def __exit__(self, *_: object) -> None:
        self.leave()
