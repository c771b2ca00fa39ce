"""A server of ours on this machine, for the length of a demo."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.errors import AttendantError

ATTENDANT = (sys.executable, "-c", "from commands.main import main; main()")
READY = re.compile(r"gRPC (\S+)\s+metrics")
STOP_LIMIT_S = 30.0


class ServeError(AttendantError):
    """The server ended before it was ready."""


@contextmanager
def serving(repository: Path, *flags: str) -> Iterator[str]:
    """The address of `attendant serve` on free ports; it ends with the block."""
    ports = ("--grpc-port", "0", "--http-port=-1", "--metrics-port", "0")
    command = [*ATTENDANT, "serve", "--model-repository", str(repository), *ports, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None, "it is a pipe"
        try:
            for line in process.stdout:
                if found := READY.search(line):
                    yield found[1]
                    break
            else:
                raise ServeError(f"the server ended with exit code {process.wait()}")
        finally:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
