"""Exports of served folders, kept between starts: a model repository of one model for each key.

    CACHE/KEY/entry.json      source and facts; written last, so that an entry is whole or none
    CACHE/KEY/model/1/...     the model
    CACHE/.KEY.lock           held while KEY is made
    CACHE/.KEY.open           shared by servers that have it open, so that nothing removes it
    CACHE/.KEY.making/        what is being made or removed; the next process removes what a killed
                              one left

Knows nothing about what an entry is made of. Safe for several processes on one machine.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands.folders.cost import free_disk
from models.errors import OutputError
from models.writing import amount

ENTRY_FILE, MODEL = "entry.json", "model"
MAKING, LOCK, OPEN = ".making", ".lock", ".open"


@dataclass(frozen=True, slots=True)
class Entry:
    """A kept export."""

    folder: Path

    @property
    def model(self) -> Path:
        """The model's folder, with its versions."""
        return self.folder / MODEL

    @property
    def facts(self) -> dict[str, Any]:
        """The source and the options that the entry was made of."""
        facts: dict[str, Any] = json.loads((self.folder / ENTRY_FILE).read_text())
        return facts

    @property
    def num_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


class Cache:
    """Kept exports of at most `max_bytes`; those in use are never removed.

    `self._open` are the locks of entries that this process has open, until it ends.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root, self._max_bytes = root, max_bytes
        self._open: list[int] = []

    def find(self, key: str) -> Entry | None:
        """The entry of a key, which then stays until this process ends; None if there is none."""
        if not (self._root / key / ENTRY_FILE).is_file():
            return None
        lock = self._opened(key, OPEN)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not (self._root / key / ENTRY_FILE).is_file():  # removed meanwhile
            os.close(lock)
            return None
        self._open.append(lock)
        os.utime(self._root / key / ENTRY_FILE)
        return Entry(self._root / key)

    def make(
        self, key: str, make: Callable[[Path], dict[str, Any]], on_wait: Callable[[], None]
    ) -> Entry:
        """The entry of a key; `make` writes a model into a folder and returns its facts.

        `on_wait` is called before waiting for another process that makes it. What fails leaves
        nothing.
        """
        with self._making(key, on_wait) as staging:
            target = self._root / key
            if not (target / ENTRY_FILE).is_file():  # none was made while this one waited
                facts = make(staging)
                (staging / ENTRY_FILE).write_text(json.dumps(facts, indent=2) + "\n")
                shutil.rmtree(target, ignore_errors=True)  # one that lost its file of facts
                staging.rename(target)
        found = self.find(key)
        if found is None:
            raise OutputError(
                f"{target} was removed by another process as soon as it was written: raise "
                "--folder-cache-bytes"
            )
        self._trim()
        return found

    def forget(self, key: str) -> None:
        """Remove an entry, so that it is made anew. Raises `OutputError` where it is in use."""
        if (self._root / key).exists() and not self._removed(key):
            raise OutputError(
                f"{self._root / key} is served by another process: stop that one first, or "
                "leave out --refresh"
            )

    def check_room(self, num_bytes: int, name: str) -> None:
        """Raise `OutputError` where an entry of that size cannot be kept: before it is made."""
        if num_bytes > self._max_bytes:
            raise OutputError(
                f"the export of {name} takes about {amount(num_bytes)}, and --folder-cache-bytes "
                f"allows {amount(self._max_bytes)}"
            )
        free = free_disk(self._root)
        if num_bytes > free:
            raise OutputError(
                f"the export of {name} takes about {amount(num_bytes)}, and {amount(free)} are "
                f"free in {self._root}: make room, or name another disk by --folder-cache"
            )

    def clean(self) -> None:
        """Remove what processes left that were killed."""
        for path in self._root.glob(f".*{MAKING}"):
            lock = self._opened(path.name.removeprefix(".").removesuffix(MAKING), LOCK)
            with _closing(lock):
                if _locks(lock, fcntl.LOCK_EX):
                    shutil.rmtree(path, ignore_errors=True)

    def entries(self) -> list[Entry]:
        """All entries, the one that was served last at the end."""
        found = [path.parent for path in self._root.glob(f"*/{ENTRY_FILE}")]
        return [
            Entry(path) for path in sorted(found, key=lambda p: (p / ENTRY_FILE).stat().st_mtime)
        ]

    def _trim(self) -> None:
        """Remove the entries that were served the longest time ago, until the others fit."""
        entries = self.entries()
        sizes = {entry.folder.name: entry.num_bytes for entry in entries}
        for entry in entries:
            key = entry.folder.name
            if sum(sizes.values()) <= self._max_bytes:
                return
            if self._removed(key):
                del sizes[key]

    def _removed(self, key: str) -> bool:
        """Whether an entry could be removed: no process has it open, or makes it."""
        opened, making = self._opened(key, OPEN), self._opened(key, LOCK)
        with _closing(opened), _closing(making):
            if not (_locks(opened, fcntl.LOCK_EX) and _locks(making, fcntl.LOCK_EX)):
                return False
            staging = self._root / f".{key}{MAKING}"
            shutil.rmtree(staging, ignore_errors=True)
            (self._root / key).rename(staging)  # at once: an entry is whole or none
            shutil.rmtree(staging, ignore_errors=True)
            return True

    @contextmanager
    def _making(self, key: str, on_wait: Callable[[], None]) -> Iterator[Path]:
        lock = self._opened(key, LOCK)
        with _closing(lock):
            if not _locks(lock, fcntl.LOCK_EX):
                on_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)
            staging = self._root / f".{key}{MAKING}"
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir()
            try:
                yield staging
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def _opened(self, key: str, kind: str) -> int:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            return os.open(self._root / f".{key}{kind}", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise OutputError(
                f"exports cannot be kept in {self._root} ({error.strerror}): name a folder that "
                "can be written by --folder-cache"
            ) from error


@contextmanager
def _closing(lock: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(lock)


def _locks(lock: int, kind: int) -> bool:
    """Whether the lock was free, and is held now."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
