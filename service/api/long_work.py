"""The work on long messages, on one thread: their making and reading, beside the event loop.

One at a time, so that the event loop shares the interpreter with one other thread. Work that still
waits when its caller leaves is not begun; work that has begun goes on, and the caller's bytes are
held until it ends. `run` is called on the event loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")
# Of a message, or the parts of one: less is worked on at once, for at most some milliseconds.
LONG_BYTES, LONG_PARTS = 2**16, 2_048
LONG_VALUES = 2**14  # numbers of an answer
LONG_SCORES = 256  # tokens with their log-probabilities, each with up to 50 others


class LongWork:
    """The thread of one server's long messages."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "long-messages")

    async def run(
        self, work: Callable[[], T], if_left: Callable[["Future[Any]"], None] | None = None
    ) -> T:
        """Do the work; `if_left` is told of what goes on after its caller was cancelled."""
        future: Future[T] = self._threads.submit(copy_context().run, work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if if_left is not None and not future.done():
                if_left(future)
            raise
