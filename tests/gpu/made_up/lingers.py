"""A section that starts processes, keeps what it has found, and then does not end."""

import multiprocessing
import subprocess
import time

from loadtests.gpu.context import Context


def run(context: Context) -> None:
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1_000,))
    worker.start()
    server = subprocess.Popen(["sleep", "1000"])  # noqa: S607 - a test's
    (context.run.work / "lingering").write_text(f"{worker.pid} {server.pid}")
    context.check("it has begun", True)
    context.say("it lingers")
    time.sleep(1_000)
