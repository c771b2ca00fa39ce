"""Threads for work that would block the event loop."""

import asyncio
import ctypes
import functools
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def release_memory() -> None:
    """Give back what a closed version held: engine, thread and callbacks point at each other."""
    gc.collect()
    release_freed_memory()


def release_freed_memory() -> None:
    """Give the system back what glibc keeps, freed, between blocks that are not."""
    with suppress(OSError, AttributeError):  # another C library
        _c_library().malloc_trim(0)


@functools.cache
def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None)


async def in_thread(work: Callable[[], T]) -> T:
    """Like `asyncio.to_thread`, on a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def resolve(result: T | None, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)  # type: ignore[arg-type]
            else:
                future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:
            error = caught
        with suppress(RuntimeError):  # the loop is closed, so no task waits
            loop.call_soon_threadsafe(resolve, result, error)

    threading.Thread(target=run, name="repository", daemon=True).start()
    return await future
