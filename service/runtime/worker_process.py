"""A process of one of our scripts, which does what the server must be able to end.

Frames of JSON go to it and come back, each after its number of bytes. One exchange at a time, on
the caller's thread, with a limit of time; a process that is late is killed. `close` is for any
thread, and ends an exchange that is under way.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

SIZE_BYTES = 8
# Nothing else of the server's environment, where secrets may be.
ENVIRONMENT = ("PATH", "TZ", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SYSTEMROOT")


class WorkerProcess:
    """One process, which is not started again.

    `_is_closed` is guarded by `_lock`, which is held for moments only.
    """

    def __init__(self, script: Path, *, is_silent: bool = False) -> None:
        """Start it; with `is_silent` its standard error goes nowhere. Raises `OSError`."""
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a file of ours
                [sys.executable, "-I", str(script)],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL if is_silent else None,
                env={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def exchange(self, value: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """The answer to a frame.

        Raises `TimeoutError` where it was late, and other errors of `OSError` and `EOFError` where
        the process ended; it is of no use after either.
        """
        end_s = time.monotonic() + limit_s
        content = json.dumps(value).encode()
        self._socket.settimeout(limit_s)
        self._socket.sendall(len(content).to_bytes(SIZE_BYTES, "little") + content)
        size = int.from_bytes(self._receive(SIZE_BYTES, end_s), "little")
        answer: dict[str, Any] = json.loads(self._receive(size, end_s))
        return answer

    def close(self, reap_s: float = 0.0) -> int:
        """End the process, which may do so by itself for a moment; its exit code."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            self._socket.close()
            if reap_s:
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(reap_s)
            self._process.kill()
        return self._process.wait()

    def _receive(self, num_bytes: int, end_s: float) -> bytearray:
        """Bytes of this number. Raises `TimeoutError`, and `EOFError` where the process ends."""
        received = bytearray()
        while len(received) < num_bytes:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            piece = self._socket.recv(min(num_bytes - len(received), 2**20))
            if not piece:
                raise EOFError
            received += piece
        return received
