"""The folder of files and batches: each with a record beside it, so that a restart knows them all.

    files/ID.json, files/ID          a file's record and its content
    batches/ID.json                  a batch's record
    batches/ID.output, ID.errors     results of a batch that has not ended; files after that

Records are replaced as a whole. One server has the folder, by a lock. What is known, and the room
that is taken, is decided on the event loop; files are written and read on threads.
"""

import asyncio
import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec

from service.errors import SettingError
from service.http.batches.records import Batch, Purpose, StoredFile, new_id
from service.http.status import HttpError
from service.runtime.background import in_thread
from service.settings import Settings

R = TypeVar("R", StoredFile, Batch)
HOUR_S = 3_600
RESULTS = ".output", ".errors"  # of a batch, behind its id


class Store:
    """The files and batches of one server; made once, when its port is."""

    def __init__(self, settings: Settings) -> None:
        """Raises `SettingError` for a folder that is another server's, or cannot be written."""
        self._settings = settings
        self.folder = Path(settings.batch_folder)
        self._files, self._batches = self.folder / "files", self.folder / "batches"
        try:
            for each in (self._files, self._batches):
                each.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise SettingError(
                f"--batch-folder '{self.folder}' cannot be used: {error.strerror}; expected a "
                "folder that can be written and that no other server has"
            ) from error
        self.files = _records(self._files, StoredFile)
        self.batches = _records(self._batches, Batch)
        self._clean()
        self.num_bytes = sum(
            path.stat().st_size
            for folder in (self._files, self._batches)
            for path in folder.iterdir()
            if path.suffix != ".json"
        )
        self._num_coming = 0  # files that are being written
        self._writing: set[asyncio.Task[None]] = set()
        self._disk = ThreadPoolExecutor(1, "batch-records")  # writes records, in their order

    def _clean(self) -> None:
        """Remove what a server left that ended amid writing: contents or records alone, drafts."""
        for path in (*self._files.iterdir(), *self._batches.glob("*.draft")):
            if path.suffix == ".draft" or not (path.suffix or path.name in self.files):
                path.unlink()
        for path in self._batches.iterdir():
            if path.suffix in RESULTS and path.stem not in self.batches:
                path.unlink()
        for file_id in [each for each in self.files if not (self._files / each).exists()]:
            (self._files / f"{file_id}.json").unlink()
            del self.files[file_id]

    def close(self) -> None:
        self._disk.shutdown()
        self._lock.close()

    @property
    def room_bytes(self) -> int:
        """The bytes that may still be written."""
        return self._settings.max_batch_bytes - self.num_bytes

    async def add(
        self,
        content: bytes | memoryview,
        filename: str,
        purpose: Purpose,
        keep_s: float | None = None,
    ) -> StoredFile:
        """Keep a file for some seconds, at most the setting's. Raises `HttpError`."""
        await self.forget_expired()
        most = self._settings.max_batch_files
        if len(self.files) + self._num_coming >= most:
            raise _full(f"{most} files are kept", "--max-batch-files")
        if len(content) > self.room_bytes:
            raise _full(
                f"{self._settings.max_batch_bytes} bytes of files are kept at most, and "
                f"{max(0, self.room_bytes)} are left",
                "--max-batch-bytes",
            )
        file = self._new_file(len(content), filename, purpose, keep_s)
        self._num_coming += 1
        self.num_bytes += len(content)
        writing = asyncio.get_running_loop().create_task(self._keep(file, content))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        await asyncio.shield(writing)  # a client that leaves does not end it
        return file

    async def _keep(self, file: StoredFile, content: bytes | memoryview) -> None:
        try:
            await in_thread(lambda: _write(self._files / file.id, content))
            await in_thread(lambda: _write_record(self._files, file))
        except OSError as error:
            self.num_bytes -= len(content)
            raise _full(f"the file cannot be written: {error.strerror}", "--batch-folder") from None
        finally:
            self._num_coming -= 1
        self.files[file.id] = file

    async def adopt(self, batch_id: str, kind: str, file_id: str) -> None:
        """Make results of a batch a file of this name, unless they are one already."""
        if file_id in self.files:
            return
        path, name = self.results_path(batch_id, kind), f"{batch_id}_{kind}.jsonl"

        def move() -> StoredFile:
            file = self._new_file(path.stat().st_size, name, "batch_output", None, file_id)
            _write_record(self._files, file)
            path.replace(self._files / file.id)  # last: a record without a content is removed
            return file

        self.files[file_id] = await in_thread(move)

    async def remove(self, file_id: str) -> None:
        """Delete a file, unless it is gone already."""
        file = self.files.pop(file_id, None)
        if file is None:  # by a request at the same time
            return
        self.num_bytes -= file.bytes

        def remove() -> None:
            (self._files / f"{file.id}.json").unlink(missing_ok=True)
            (self._files / file.id).unlink(missing_ok=True)

        await in_thread(remove)

    async def save(self, batch: Batch) -> None:
        """Make a batch's record durable."""
        self.batches[batch.id] = batch
        path, content = self._batches / f"{batch.id}.json", msgspec.json.encode(batch)
        await asyncio.get_running_loop().run_in_executor(self._disk, _write, path, content)

    async def forget_expired(self) -> None:
        """Delete what is older than it is kept, but what a running batch reads."""
        now_s = time.time()
        for file in [*self.files.values()]:
            if file.expires_at <= now_s and file.id not in self.used_files():
                await self.remove(file.id)
        keep_s = self._settings.batch_keep_hours * HOUR_S
        for batch in [*self.batches.values()]:
            if batch.has_ended and batch.created_at + keep_s <= now_s:
                self.batches.pop(batch.id, None)
                (self._batches / f"{batch.id}.json").unlink(missing_ok=True)

    def used_files(self) -> dict[str, str]:
        """The files that batches read which have not ended, with the batches."""
        return {
            batch.input_file_id: batch.id for batch in self.batches.values() if not batch.has_ended
        }

    def open_file(self, file_id: str) -> BinaryIO:
        return (self._files / file_id).open("rb")

    def results_path(self, batch_id: str, kind: str) -> Path:
        """The results of a batch that has not ended: its output, or its errors."""
        return self._batches / f"{batch_id}.{kind}"

    def _new_file(
        self,
        num_bytes: int,
        filename: str,
        purpose: Purpose,
        keep_s: float | None,
        file_id: str = "",
    ) -> StoredFile:
        most_s = self._settings.batch_keep_hours * HOUR_S
        now_s = int(time.time())
        expires_at = now_s + int(min(most_s, keep_s or most_s))
        file_id = file_id or new_id("file-")
        return StoredFile(file_id, num_bytes, now_s, expires_at, filename, purpose)


def _records(folder: Path, kind: type[R]) -> dict[str, R]:
    """The records of a folder, oldest first. Raises `SettingError` for one that is none."""
    found: list[R] = []
    for path in folder.glob("*.json"):
        try:
            record = msgspec.json.decode(path.read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError) as error:
            raise SettingError(
                f"--batch-folder has '{path}', which is no record: {error}; move it away"
            ) from error
        found.append(record)
    found.sort(key=lambda record: (record.created_at, record.id))
    return {record.id: record for record in found}


def _write_record(folder: Path, record: StoredFile) -> None:
    _write(folder / f"{record.id}.json", msgspec.json.encode(record))


def _write(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that it is there as a whole, on the disk, or as it was before."""
    draft = path.with_name(f"{path.name}.draft")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _full(text: str, setting: str) -> HttpError:
    return HttpError(413, f"{text}: delete files, or see {setting}", code="storage_full")
