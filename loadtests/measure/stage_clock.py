"""Processor time by stage: every thread is in one stage at a time, and its clock runs for that one.

A stage that another calls takes its time from it. What a thread does outside all stages is what its
clock shows beyond them. Reading a thread's clock is a call of the system, whose cost is known and
taken off.
"""

import functools
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any

OUTSIDE = ""
TRIALS = 20_000


@dataclass(slots=True, eq=False)
class ThreadStages:
    """One thread's stages."""

    thread_id: int
    stage: str = OUTSIDE
    since_ns: int = 0
    spent_ns: Counter[str] = field(default_factory=Counter)
    num_switches: Counter[str] = field(default_factory=Counter)

    def switch(self, stage: str) -> str:
        """Go over to a stage; returns the one before."""
        now_ns, before = time.thread_time_ns(), self.stage
        self.spent_ns[before] += now_ns - self.since_ns
        self.num_switches[before] += 1
        self.num_switches[stage] += 1
        self.stage, self.since_ns = stage, now_ns
        return before


class StageClock:
    """The stages of all threads."""

    def __init__(self) -> None:
        self._own = threading.local()
        self.threads: list[ThreadStages] = []

    @property
    def here(self) -> ThreadStages:
        """Those of the calling thread."""
        try:
            return self._own.stages  # type: ignore[no-any-return]
        except AttributeError:
            stages = ThreadStages(threading.get_native_id(), since_ns=time.thread_time_ns())
            self._own.stages = stages
            self.threads.append(stages)
            return stages

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose time is a stage's."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            here = self.here
            before = here.switch(stage)
            try:
                return function(*args, **kwargs)
            finally:
                here.switch(before)

        return run

    def stepped(
        self, stage: str, function: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        """The same coroutine function; the time between its steps is not its own."""

        @functools.wraps(function)
        async def run(*args: Any, **kwargs: Any) -> Any:
            return await _Steps(self, stage, function(*args, **kwargs))

        return run

    def switch_ns(self) -> float:
        """The cost of going into a stage and out of it again, with the call."""

        def nothing() -> None:
            pass

        timed = StageClock().timed("nothing", nothing)
        taken_ns = []
        for function in (nothing, timed):
            started_ns = time.thread_time_ns()
            for _ in range(TRIALS):
                function()
            taken_ns.append(time.thread_time_ns() - started_ns)
        return (taken_ns[1] - taken_ns[0]) / TRIALS


class _Steps:
    """An awaited coroutine, each of whose steps is timed."""

    __slots__ = ("_clock", "_coroutine", "_stage")

    def __init__(self, clock: StageClock, stage: str, coroutine: Any) -> None:
        self._clock, self._stage, self._coroutine = clock, stage, coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    def __iter__(self) -> "_Steps":
        return self

    def __next__(self) -> Any:
        return self._step(self._coroutine.send, None)

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def _step(self, resume: Callable[..., Any], *args: Any) -> Any:
        here = self._clock.here
        before = here.switch(self._stage)
        try:
            return resume(*args)
        finally:
            here.switch(before)
