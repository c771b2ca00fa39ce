"""A worker process that makes a model of a folder, followed line by line until it ends."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from commands.folders.explanation import INSTALL
from commands.folders.reports import Reports
from models.errors import ModelError

END_S = 5.0  # for a worker to end that is not needed any more


class PreparationError(ModelError):
    """A folder cannot be made ready; says why, and what to do."""


def run_worker(
    job: Mapping[str, Any], name: str, seconds: float, reports: Reports
) -> dict[str, Any]:
    """The facts of what a worker made; `seconds` is the estimate of its duration.

    Raises `PreparationError`; the worker has ended then.
    """
    command = [sys.executable, "-m", "commands.folders.worker"]
    worker = subprocess.Popen(  # noqa: S603 - our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert worker.stdin is not None, "it was asked for"
    assert worker.stdout is not None, "it was asked for"
    try:
        worker.stdin.write(json.dumps({**job, "install": INSTALL}) + "\n")
        worker.stdin.flush()
        with reports.steps(name, seconds) as steps:
            for text in worker.stdout:
                line = json.loads(text)
                if "error" in line:
                    raise PreparationError(f"{name}: {line['error']}")
                if "facts" in line:
                    facts: dict[str, Any] = line["facts"]
                    return facts
                if "step" in line:
                    steps.step(line["step"])
                else:
                    reports.say(f"{name}: warning: {line['remark']}")
        code = worker.wait()
        killed = ", as where memory is short" if code == -9 else ""
        raise PreparationError(f"{name}: the process of the export ended with {code}{killed}")
    finally:
        _end(worker)


def _end(worker: "subprocess.Popen[str]") -> None:
    if worker.poll() is None:
        worker.terminate()
        try:
            worker.wait(END_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    for stream in (worker.stdin, worker.stdout):
        if stream is not None:
            stream.close()
