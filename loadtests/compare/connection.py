"""The driver's half of the protocol of `worker.py`: `Worker`, a process that answers lines."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from loadtests.compare.worker import Answer, Setup, Work

ROOT = Path(__file__).parents[2]
OPEN_LIMIT_S = 600.0
RUN_LIMIT_S = 600.0
END_LIMIT_S = 10.0


class WorkerError(Exception):
    """The worker says that it could not, ended, or took longer than its limit."""

    def __init__(self, worker: str, why: str) -> None:
        super().__init__(why)
        self.worker = worker


class Worker:
    """A process of its own group, so that a server that it started ends with it.

    The group is stopped while others have their turn: servers that poll while they wait would
    take a tenth of a processor each.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as stderr:
            self._process = subprocess.Popen(  # noqa: S603 - as declared in peers.py
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env={**os.environ, **environ},
                text=True,
                start_new_session=True,
            )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def open(self, setup: Setup) -> None:
        self._ask({"open": asdict(setup)}, OPEN_LIMIT_S)
        self._signal(signal.SIGSTOP)

    def run(self, work: Work) -> Answer:
        self._signal(signal.SIGCONT)
        try:
            return Answer(**self._ask({"run": asdict(work)}, RUN_LIMIT_S))
        finally:
            self._signal(signal.SIGSTOP)

    def _ask(self, message: dict[str, Any], limit_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(limit_s, self._kill)
        timer.start()
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            why = f"{self.name} ended, or took longer than {limit_s:g} s; {self._log}"
            raise WorkerError(self.name, why)
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise WorkerError(self.name, f"{self.name}: {reply['error']}")
        return reply

    def close(self) -> None:
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(END_LIMIT_S)
        self._kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
