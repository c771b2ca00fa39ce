"""Ask a server: as many clients as wait at once, or requests at times of their own.

A closed loop is measured from answer to answer while all clients are at work, so neither filling
the server nor draining it counts: after as many answers as there are clients, until all rows were
answered and `least_s` has passed. Knows nothing of protocols.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from loadtests.compare.worker import Answer
from loadtests.load.arrivals import poisson, steady

Ask: TypeAlias = Callable[[str], Awaitable[list[float]]]  # a text to its vector, or an error
LEAST_S = 3.0  # so that a fast server's turn is no shorter than what the machine does beside
REQUEST_LIMIT_S = 120.0
SEED = 5


async def closed_loop(
    ask: Ask, texts: Sequence[str], concurrency: int, least_s: float = LEAST_S
) -> Answer:
    """Seconds are per `len(texts)` answers; latencies are of the answers that counted."""
    outputs: dict[int, list[float]] = {}
    ended_s: list[float] = []
    latencies_s: list[float] = []
    numbers = itertools.count()
    now_s = asyncio.get_running_loop().time

    def is_over() -> bool:
        counted = len(ended_s) - concurrency
        return counted >= len(texts) and ended_s[-1] - ended_s[concurrency - 1] >= least_s

    async def client() -> None:
        while not is_over():
            number = next(numbers) % len(texts)
            sent_s = now_s()
            vector = await asyncio.wait_for(ask(texts[number]), REQUEST_LIMIT_S)
            outputs[number] = vector
            if not is_over():  # those that wait when it is over are answered, and not counted
                ended_s.append(now_s())
                latencies_s.append(ended_s[-1] - sent_s)

    async with first_fault(), asyncio.TaskGroup() as clients:
        for _ in range(concurrency):
            clients.create_task(client())
    counted = len(ended_s) - concurrency
    seconds = (ended_s[-1] - ended_s[concurrency - 1]) * len(texts) / counted
    return Answer(seconds, _in_order(outputs), latencies_s[concurrency:])


async def open_loop(ask: Ask, texts: Sequence[str], rate: float) -> Answer:
    """Poisson arrivals; latencies are from when a request was due, whenever it was sent."""
    outputs: dict[int, list[float]] = {}
    latencies_s: list[float] = []
    now_s = asyncio.get_running_loop().time
    begun_s = now_s()

    async def one(number: int, due_s: float) -> None:
        outputs[number] = await asyncio.wait_for(ask(texts[number]), REQUEST_LIMIT_S)
        latencies_s.append(now_s() - begun_s - due_s)

    due = poisson(steady(rate), rate, float("inf"), random.Random(SEED))
    async with first_fault(), asyncio.TaskGroup() as requests:
        for number, due_s in enumerate(itertools.islice(due, len(texts))):
            await asyncio.sleep(max(0.0, begun_s + due_s - now_s()))
            requests.create_task(one(number, due_s))
    return Answer(now_s() - begun_s, _in_order(outputs), latencies_s)


@asynccontextmanager
async def first_fault() -> AsyncIterator[None]:
    """Raise the most informative of several concurrent errors."""
    try:
        yield
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from None


def _in_order(outputs: dict[int, list[float]]) -> list[list[float]]:
    return [outputs[number] for number in sorted(outputs)]
