"""`attendant serve FOLDER ...` in a process of its own, on free ports."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fakes.sessions import PATIENCE_S


@contextmanager
def started(*line: object) -> Iterator[tuple[str, list[str]]]:
    """The address over HTTP, and, when it has ended, what it wrote to its log."""
    ports = ("--grpc-port", "0", "--http-port", "0", "--metrics-port", "0")
    program = "from commands.main import main; main()"
    served = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", program, "serve", *map(str, line), *ports],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert served.stdout is not None
    lines: list[str] = []
    try:
        printed = next((each for each in served.stdout if each.startswith("HTTP")), "")
        if printed:
            yield printed.split()[1], lines
    finally:
        served.send_signal(signal.SIGTERM)
        _, log = served.communicate(timeout=PATIENCE_S)
        lines += log.splitlines()
    assert printed, log
