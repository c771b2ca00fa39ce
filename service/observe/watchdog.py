"""Turns liveness off while a run takes too long, so that a supervisor restarts the process.

A session cannot be interrupted from outside in general: a run that never returns keeps its thread
and its requests, and only a new process helps. Where it does return, liveness comes back. A lost
device does not. Lives on the event loop; of models it knows only since when they run.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

CHECK_INTERVAL_S = 1.0
logger = logging.getLogger(__name__)


class Watched(Protocol):
    """A model, as far as it is watched."""

    name: str

    @property
    def running_since_s(self) -> float | None: ...


class Watchdog:
    """Calls `tell(is_live)` at every change; live at first. `max_run_s` 0 is no bound."""

    def __init__(
        self,
        models: Callable[[], Iterable[Watched]],
        tell: Callable[[bool], None],
        max_run_s: float,
    ) -> None:
        self._models = models
        self._tell = tell
        self._max_run_s = max_run_s
        self._is_live = True
        self._has_lost_device = False

    async def watch(self) -> None:
        """Check for ever."""
        while True:
            try:
                self.check(time.monotonic())
            except Exception:  # it must not be the one that fails unseen
                logger.exception("the watchdog could not look")
            await asyncio.sleep(CHECK_INTERVAL_S)

    def check(self, now_s: float) -> None:
        """Compare the oldest run of each model with the bound."""
        stuck = list(self._stuck(now_s))
        is_live = not (stuck or self._has_lost_device)
        if is_live == self._is_live:
            return
        self._is_live = is_live
        for name, seconds in stuck:
            logger.error(
                "not live: a run of '%s' has taken %.0f s, at most %g are expected (--max-run-s)",
                *(name, seconds, self._max_run_s),
            )
        if is_live:
            logger.warning("live again: the run that took too long has ended")
        self._tell(is_live)

    def device_lost(self, name: str, reason: str) -> None:
        """Note that a model's device fails every run from now on; the next check reports it."""
        self._has_lost_device = True
        logger.error(
            "not live: '%s' stops serving, because its device is lost until this process ends: %s",
            *(name, reason),
        )

    def _stuck(self, now_s: float) -> Iterable[tuple[str, float]]:
        for model in self._models():
            since_s = model.running_since_s
            if self._max_run_s and since_s is not None and now_s - since_s > self._max_run_s:
                yield model.name, now_s - since_s
