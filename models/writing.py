"""Write what a command makes, so that a failure is one line and leaves nothing half written.

Knows nothing about what is written. A full disk is the usual failure: the message then says how
much was to be written and how much room there is, once the unfinished part is gone.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from models.errors import OutputError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # of the disk, of a quota
UNITS = ("bytes", "kB", "MB", "GB", "TB")


@contextmanager
def writing(target: Path, num_bytes: int, kept: str = "") -> Iterator[None]:
    """While `target` is written, turn errors of the file system into an OutputError.

    The caller removes inside what it leaves unfinished. `num_bytes` is about how much is to be
    written; `kept` says what remains of before, if anything does.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        reason += f": {amount(num_bytes)} are needed"
        if error.errno in NO_ROOM:
            reason += f", {_free(target, num_bytes)}; make room and repeat the command"
        raise OutputError(f"{target} cannot be written: {reason}{kept}") from error


def replace_file(
    path: Path, num_bytes: int, write: Callable[[BinaryIO], object], kept: str = ""
) -> None:
    """Write a file beside and put it in place at once: a crash leaves the earlier one.

    Raises OutputError, and then the unfinished one is gone.
    """
    unfinished = path.with_name(path.name + ".part")
    with writing(path, num_bytes, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with unfinished.open("wb") as file:
                write(file)
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)


def replace_bytes(path: Path, content: bytes) -> None:
    replace_file(path, len(content), lambda file: file.write(content))


def amount(num_bytes: float) -> str:
    """Bytes as people say it, such as `12.3 MB`."""
    power = 0
    while num_bytes >= 1000 and power < len(UNITS) - 1:
        num_bytes, power = num_bytes / 1000, power + 1
    return f"{num_bytes:.1f} {UNITS[power]}" if power else f"{num_bytes:.0f} {UNITS[0]}"


def _free(target: Path, num_bytes: int) -> str:
    folder = next(each for each in target.absolute().parents if each.is_dir())
    free = shutil.disk_usage(folder).free
    missing = f" and {amount(num_bytes - free)} missing" if free < num_bytes else ""
    return f"{amount(free)} are free in {folder}{missing}"
