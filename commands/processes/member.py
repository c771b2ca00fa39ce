"""One of the processes of a server: `python -m commands.processes.member`, started by `supervisor`.

It reads its part as a line of JSON from stdin, says as lines of JSON on stdout how it went, and
drains when stdin ends, as it does when its starter has died.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from commands.errors import errors
from service.app import App, serve
from service.errors import AttendantError
from service.observe.logs import configure
from service.settings import Settings
from service.team.siblings import Siblings


@dataclass(frozen=True, slots=True)
class Part:
    """Settings and place of one process of several."""

    settings: dict[str, Any]
    index: int
    count: int
    folder: str  # of the sockets between them
    cpus: tuple[int, ...]  # which it runs on; empty for all
    log_level: str

    def to_line(self) -> bytes:
        return json.dumps(asdict(self), default=str).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        return cls(**json.loads(line))

    def to_settings(self) -> Settings:
        given = dict(self.settings)
        given["model_repository"] = Path(given["model_repository"])
        return Settings(**given)


class _Numbered(logging.Filter):
    """Names the process at the beginning of each line."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self._words = f"[{part.index + 1} of {part.count}] "

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = self._words + str(record.msg)
        return True


def main() -> None:
    part = Part.of_line(sys.stdin.buffer.readline())
    if part.cpus:
        os.sched_setaffinity(0, part.cpus)
    settings = part.to_settings()
    configure(settings.log_format, part.log_level, settings.max_log_repeats, errors)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_Numbered(part))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        siblings = Siblings(Path(part.folder), part.index, part.count)
        asyncio.run(serve(settings, _tell_ready, siblings=siblings))
    except AttendantError as error:
        _tell({"error": str(error)})
        sys.exit(1)


async def _tell_ready(app: App) -> None:
    _tell({"models": app.opened.models})


def _tell(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201 - its starter reads it


def _end_with_stdin() -> None:
    # Not by `sys.stdin`, whose lock this thread would hold while the interpreter ends.
    while os.read(sys.stdin.fileno(), 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
