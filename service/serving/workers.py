"""Runs tokenizing at once on the event loop if it is short, else on another thread.

Of tokenizers it knows only whether the time that they take follows from a text's length. How much
may wait for the thread is bounded, per model.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from service.errors import Overloaded
from service.records import ObservedCall, current_call
from service.text.tokenizer import without_panics

# Below this size a hop to another thread costs more than tokenizing: docs/benchmarks.md.
INLINE_CHARACTERS = 1_024
MAX_WAITING = 64  # long requests, or images, of one model on the way to another thread, or there
T = TypeVar("T")


class Tokenizing:
    """Runs work of one model; lives on the event loop."""

    def __init__(self, executor: Executor, *, has_known_time: bool = True) -> None:
        """Work whose time no length bounds has a thread of its own, and never the event loop."""
        self._own = None if has_known_time else ThreadPoolExecutor(1, "own-tokenizer")
        self._executor = self._own or executor
        self._num_waiting = 0

    def close(self) -> None:
        """End the thread of its own once its work is done; what waits for it is left."""
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)

    async def run(self, work: Callable[[], T], num_characters: int) -> T:
        """Do the work, or raise `Overloaded` where too much waits already."""
        call = current_call.get()
        if call is None:
            return await self._run(work, num_characters)
        return await self._timed(work, num_characters, call)

    async def _timed(self, work: Callable[[], T], num_characters: int, call: ObservedCall) -> T:
        started_s = time.monotonic()
        try:
            return await self._run(work, num_characters)
        finally:
            call.tokenized_s = started_s, time.monotonic()

    async def _run(self, work: Callable[[], T], num_characters: int) -> T:
        if self._own is None and num_characters <= INLINE_CHARACTERS:
            with without_panics():
                return work()
        return await self.run_elsewhere(work)

    async def run_elsewhere(self, work: Callable[[], T]) -> T:
        """Do the work on the other thread, however little it seems to be."""
        if self._num_waiting >= MAX_WAITING:
            raise Overloaded("Exceeds maximum queue size")
        self._num_waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, _guarded, work)
        finally:
            self._num_waiting -= 1


def _guarded(work: Callable[[], T]) -> T:
    with without_panics():
        return work()
