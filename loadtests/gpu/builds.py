"""The models whose speed is measured, as they are being built by processes of their own.

They are begun with the run and built beside its first sections, which need the device more than
processors. A section waits for what it needs, whichever process has begun it. Pure bookkeeping of
files and processes; `build.py` has the work.
"""

import importlib
import multiprocessing
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from loadtests.gpu.context import Context, Run
from loadtests.gpu.shapes import names_of
from loadtests.gpu.sources import EXPORTING, digest_of

MAX_REASON = 500  # characters
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Builds:
    """The models of a run's device, one for each shape."""

    repository: Path
    device: str

    def start(self, names: Iterable[str]) -> None:
        """Begin to build those that are not there, and that no process is building."""
        self.repository.mkdir(parents=True, exist_ok=True)
        method = multiprocessing.get_context("forkserver")
        for name in names:
            if not self.folder(name).is_dir() and not self.is_being_built(name):
                arguments = (self.repository, name, self.device, self._reason_file(name))
                process = method.Process(target=_build, args=arguments)
                process.start()
                self._process_file(name).write_text(str(process.pid))

    def folder(self, name: str) -> Path:
        """A shape's version folder."""
        return self.repository / name / "1"

    def problem(self, name: str, wait_s: float) -> str:
        """Wait for a shape; why it cannot be used, or empty."""
        ends_s = time.monotonic() + wait_s
        while self.is_being_built(name):
            if time.monotonic() >= ends_s:
                return f"it is not built after {max(0.0, wait_s):.0f} s of waiting"
            time.sleep(POLL_S)
        if self.folder(name).is_dir():
            return ""
        if not self._process_file(name).exists():
            return "it was not begun"
        reason = self._reason_file(name)
        said = reason.read_text() if reason.exists() else "its process ended early"
        return f"building it failed: {said}"

    def is_being_built(self, name: str) -> bool:
        """Whether its process runs; forks are reaped by the process that made them."""
        with suppress(OSError, ValueError):
            os.kill(int(self._process_file(name).read_text()), 0)
            return True
        return False

    def _process_file(self, name: str) -> Path:
        return self.repository / f".{name}.process"

    def _reason_file(self, name: str) -> Path:
        return self.repository / f".{name}.reason"


def begin(run: Run) -> None:
    """Begin to build all that the sections of speed need."""
    _of(run).start(names_of(is_tiny=run.is_tiny))


def builds_of(context: Context) -> Builds:
    return _of(context.run)


def _of(run: Run) -> Builds:
    """In a folder named after the exporter's sources: they are built anew after a change."""
    return Builds(run.work / f"speed-{run.device}-{digest_of(EXPORTING)}", run.device)


def _build(repository: Path, name: str, device: str, reason: Path) -> None:
    """Build one, or leave the reason for which that is not possible."""
    reason.unlink(missing_ok=True)
    try:
        importlib.import_module("loadtests.gpu.build").build(repository, name, device)
    except Exception as error:
        reason.write_text(f"{type(error).__name__}: {error}"[:MAX_REASON])
        raise
