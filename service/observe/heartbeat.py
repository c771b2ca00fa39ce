"""Duration for which the event loop stands still, as other threads see it.

The loop beats ten times a second. A thread that answers probes reads when it last did, so that a
loop that works on one heavy request is told from one that never comes back. `Heartbeat` is a policy
on times that are passed in; its fields are single numbers, written on the loop, read anywhere.
"""

import asyncio
import time

BEAT_S = 0.1
WINDOW_S = 60.0  # a gap is told for one to two of these, so that each scrape sees it


class Heartbeat:
    """The beats of one event loop: gaps between them, and the time since the last."""

    def __init__(self, now_s: float) -> None:
        self._last_s = now_s
        self._window_from_s = now_s
        self._longest_s = 0.0  # in this window
        self._longest_before_s = 0.0  # in the one before

    def beat(self, now_s: float) -> None:
        """Note that the loop runs."""
        if now_s - self._window_from_s >= WINDOW_S:
            self._window_from_s, self._longest_before_s = now_s, self._longest_s
            self._longest_s = 0.0
        self._longest_s = max(self._longest_s, self.gap_s(now_s))
        self._last_s = now_s

    def gap_s(self, now_s: float) -> float:
        """Seconds for which the loop stands still: the time by which its beat is late."""
        return max(0.0, now_s - self._last_s - BEAT_S)

    def longest_gap_s(self, now_s: float) -> float:
        """The longest gap of the last minute or two, the present one included."""
        return max(self._longest_s, self._longest_before_s, self.gap_s(now_s))

    async def keep(self) -> None:
        """Beat for ever."""
        while True:
            self.beat(time.monotonic())
            await asyncio.sleep(BEAT_S)
