"""An event loop whose clock jumps to the next timer: seconds pass in no time, and exactly."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Time stands still while anything is ready to run."""

    _now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            due_s = self._scheduled[0].when()  # type: ignore[attr-defined]
            self._now_s = max(self._now_s, due_s)
        super()._run_once()  # type: ignore[misc]


def run_virtually(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
