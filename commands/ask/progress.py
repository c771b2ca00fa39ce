"""A progress bar on stderr for texts: how many are answered, the rate, and the time left."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from commands.errors import errors

Advance = Callable[[int, int], None]  # the place that is reached, and the number of answers


@contextmanager
def progress(noun: str, total: int | None, place: int = 0, count: int = 0) -> Iterator[Advance]:
    """A bar on a terminal from the second call on; it shows the time left if that is known.

    `place` and `count` are what an earlier run reached. The rate is that of this one.
    """
    bar = Progress(
        TextColumn("{task.fields[count]:,} " + f"{noun}s"),
        BarColumn(),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn() if total is None else TimeRemainingColumn(),
        console=errors,
        transient=True,
        # Rich would print stdout above its bar, and thus to stderr.
        redirect_stdout=sys.stdout.isatty(),
    )
    began_s, first_count = time.monotonic(), count
    task: TaskID | None = None

    def advance(place_now: int, count_now: int) -> None:
        nonlocal task
        if task is None:
            task = bar.add_task("", total=total, completed=place, count=count_now, rate=0.0)
            return
        if not bar.live.is_started and errors.is_terminal:
            bar.start()
        rate = (count_now - first_count) / max(time.monotonic() - began_s, 1e-9)
        bar.update(task, completed=place_now, count=count_now, rate=rate)

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()
