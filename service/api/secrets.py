"""The contents of a few files, read again when they change: secrets are renewed while serving.

A change that cannot be read, such as a half-written file, leaves the previous contents, and is
tried again when the files change once more. Any thread may read. A check costs one `stat` per file
and second.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from service.errors import SettingError

LOOK_INTERVAL_S = 1.0
T = TypeVar("T")
_Stamp = tuple[int, int, int]
logger = logging.getLogger(__name__)


class WatchedFiles(Generic[T]):
    """`value` is what `read` made of the files when it last could; it raises `SettingError`."""

    def __init__(
        self,
        paths: Sequence[Path],
        read: Callable[[], T],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()  # guards what follows
        self._seen = self._stamps()
        self._value = read()
        self._look_s = clock() + LOOK_INTERVAL_S

    @property
    def value(self) -> T:
        now_s = self._clock()
        if now_s >= self._look_s:
            with self._lock:
                self._look(now_s)
        return self._value

    def _look(self, now_s: float) -> None:
        if now_s < self._look_s:
            return
        self._look_s = now_s + LOOK_INTERVAL_S
        stamps = self._stamps()
        if stamps == self._seen:
            return
        try:
            value = self._read()
        except SettingError as error:
            if stamps == self._stamps():
                self._seen = stamps
                logger.error("the previous contents stay in use: %s", error)  # noqa: TRY400
            return
        if stamps == self._stamps():  # else it changed while it was read
            self._seen, self._value = stamps, value
            logger.info("read again: %s", ", ".join(map(str, self._paths)))

    def _stamps(self) -> list[_Stamp | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_bytes(flag: str, path: Path, max_bytes: int) -> bytes:
    """A small file that a setting names; raises `SettingError` with both."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise SettingError(f"{flag} '{path}' cannot be read: {error.strerror}") from error
    if len(content) > max_bytes:
        raise SettingError(f"{flag} '{path}' is too large, expected at most {max_bytes} bytes")
    return content
