"""Files of results that grow durably, and are there under their name once they are whole.

`GrowingFile` appends to OUTPUT.partial. `Parts` keeps a file for each window in OUTPUT.parts, each
written whole or not at all, of which one file is made at the end: of Parquet, whose end describes
all of it, and of jobs whose windows are computed on several machines.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol
from uuid import uuid4

from commands.ask.bulk.forms import Form, errors_of
from commands.ask.bulk.rows import Rows
from commands.ask.bulk.state import Reached, sync_folder, write_whole
from commands.ask.bulk.windows import Window
from service.errors import AttendantError

COPY_BYTES = 2**20  # at once


class BulkOutput(Protocol):
    """Destination of a job's windows."""

    def open(self, reached: Reached) -> None:
        """Go on from a place; what was written behind it is gone."""
        ...

    def write(self, window: Window, reached: Reached) -> Reached:
        """Write a window behind what was reached, and return what is reached with it."""
        ...

    def sync(self) -> None:
        """Return when all that was written is on the disk."""
        ...

    def finish(self, reached: Reached) -> None:
        """Give the whole file its name."""
        ...

    def close(self) -> None: ...


def errors_path(output: Path) -> Path:
    """The file of the lines without a result."""
    return output.with_name(f"{output.name}.errors.jsonl")


class GrowingFile:
    """One file that each window is appended to."""

    def __init__(self, output: Path, form: Form) -> None:
        self._output = output
        self._partial = output.with_name(f"{output.name}.partial")
        self._form = form
        self._file: BinaryIO | None = None
        self._errors: BinaryIO | None = None

    def open(self, reached: Reached) -> None:
        head = self._form.head(0)
        if reached.num_lines:
            self._file = _opened_at(self._partial, len(head) + reached.output_bytes)
        else:
            self._file = _opened_at(self._partial, 0)
            self._file.write(head)
        if reached.errors_bytes:
            self._errors = _opened_at(errors_path(self._output), reached.errors_bytes)
        else:
            errors_path(self._output).unlink(missing_ok=True)

    def write(self, window: Window, reached: Reached) -> Reached:
        assert self._file is not None, "it is open"
        content, errors = self._form.bytes_of(window), errors_of(window)
        self._file.write(content)
        if errors:
            self._errors = self._errors or _opened_at(errors_path(self._output), 0)
            self._errors.write(errors)
        return reached.after(window, len(content), len(errors))

    def sync(self) -> None:
        for file in (self._file, self._errors):
            if file is not None:
                file.flush()
                os.fsync(file.fileno())

    def finish(self, reached: Reached) -> None:
        assert self._file is not None, "it is open"
        self._file.seek(0)
        self._file.write(self._form.head(reached.num_lines))
        self.sync()
        self._partial.replace(self._output)
        sync_folder(self._output.parent)

    def close(self) -> None:
        for file in (self._file, self._errors):
            if file is not None:
                file.close()


def _opened_at(path: Path, size: int) -> BinaryIO:
    """A file that is cut to a size, to be written from there. Raises `AttendantError`."""
    file = path.open("r+b" if size and path.exists() else "w+b")
    if os.fstat(file.fileno()).st_size < size:
        file.close()
        raise AttendantError(
            f"'{path}' is shorter than its job's state says, expected at least {size} bytes: "
            "--restart begins anew"
        )
    file.truncate(size)
    file.seek(size)
    return file


class Parts:
    """A Parquet file for each window, and one of all of them at the end."""

    def __init__(self, output: Path, rows: Rows) -> None:
        self._output = output
        self._rows = rows
        self.folder = output.with_name(f"{output.name}.parts")

    def open(self, reached: Reached) -> None:
        if not reached.num_lines:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        errors_path(self._output).unlink(missing_ok=True)

    def path_of(self, first_line: int) -> Path:
        """The file of the window that begins with this line."""
        return self.folder / f"{first_line:012}.parquet"

    def write(self, window: Window, reached: Reached) -> Reached:
        from commands.ask.bulk.parquet_files import part_of

        errors, path = errors_of(window), self.path_of(window.first)
        writer = (
            f"{uuid4().hex}."  # another node may still write the same, if it was taken for lost
        )
        if errors:
            write_whole(errors_path(path), errors, writer)
        else:
            errors_path(path).unlink(missing_ok=True)
        content = part_of(window, self._rows)
        write_whole(path, content, writer)  # last: once it exists, the part is done
        return reached.after(window, len(content), len(errors))

    def sync(self) -> None:
        """Each part was when it was written."""

    def finish(self, reached: Reached) -> None:
        from commands.ask.bulk.parquet_files import join_parts

        parts = sorted(self.folder.glob("*.parquet"))
        partial = self._output.with_name(f"{self._output.name}.partial")
        num_lines = join_parts(parts, partial, self._rows)
        assert num_lines == reached.num_lines, "each window has its part, and no other is there"
        _join(map(errors_path, parts), errors_path(self._output))
        partial.replace(self._output)
        sync_folder(self._output.parent)
        shutil.rmtree(self.folder)

    def close(self) -> None:
        pass


def _join(paths: Iterator[Path], whole: Path) -> None:
    """Append files to each other; those that do not exist are empty, and so may all be."""
    draft = whole.with_name(f"{whole.name}.draft")
    with draft.open("wb") as file:
        for path in paths:
            if path.exists():
                with path.open("rb") as part:
                    shutil.copyfileobj(part, file, COPY_BYTES)
        file.flush()
        os.fsync(file.fileno())
        is_empty = not file.tell()
    if is_empty:
        draft.unlink()
    else:
        draft.replace(whole)
