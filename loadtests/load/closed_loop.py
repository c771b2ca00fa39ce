"""`closed_loop`: clients that each send the next item when the last one was answered; no counts."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def closed_loop(
    items: Iterable[Item], concurrency: int, ask: Callable[[Item], Awaitable[object]]
) -> float:
    """Seconds until all items are answered, `concurrency` of them in flight."""
    waiting = iter(items)

    async def client() -> None:
        for item in waiting:
            await ask(item)

    started_s = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    return time.perf_counter() - started_s
