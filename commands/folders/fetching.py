"""Lines about files that are fetched from the hub, where its own bars are not shown.

On a terminal the hub's library draws a bar for each file. Elsewhere a line is written at each tenth
of the bytes, by the sizes of the files in the hub's cache. Imports no PyTorch.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commands.errors import errors
from commands.folders.reports import Reports
from models.writing import amount

INTERVAL_S = 1.0
TENTH = 10


class Progress:
    """Bytes that have come, said at each tenth of them."""

    def __init__(self, name: str, num_bytes: int) -> None:
        self._name, self._num_bytes = name, num_bytes
        self._said = 0  # tenths

    def line(self, done: int, seconds: float) -> str | None:
        """The line for bytes that came in that time; None where it was said already."""
        done = min(done, self._num_bytes)  # other files may come meanwhile
        tenths = TENTH * done // self._num_bytes
        if tenths <= self._said:
            return None
        self._said = tenths
        left = seconds * (self._num_bytes - done) / done
        about = f", about {left:.0f} s left" if left >= 1 else ""
        return f"{self._name}: {amount(done)} of {amount(self._num_bytes)} fetched{about}"


@contextmanager
def showing_progress(name: str, snapshot: Path, num_bytes: int, reports: Reports) -> Iterator[None]:
    """While entered, lines about what is fetched into the repository's part of the hub's cache."""
    if errors.is_terminal or not num_bytes:
        yield
        return
    blobs, ended = snapshot.parents[1] / "blobs", threading.Event()
    start, start_s = _size_of(blobs), time.monotonic()
    progress = Progress(name, num_bytes)

    def watch() -> None:
        while not ended.wait(INTERVAL_S):
            line = progress.line(_size_of(blobs) - start, time.monotonic() - start_s)
            if line is not None:
                reports.say(line)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
        line = progress.line(_size_of(blobs) - start, time.monotonic() - start_s)
        if line is not None:
            reports.say(line)


def _size_of(folder: Path) -> int:
    """Bytes of its files, of which any may be renamed meanwhile."""
    num_bytes = 0
    for path in folder.glob("*"):
        try:
            num_bytes += path.stat().st_size
        except FileNotFoundError:
            continue
    return num_bytes
