"""A section that starts processes and then does not end."""

import multiprocessing
import os
import subprocess
import time
from concurrent.futures import ProcessPoolExecutor

from loadtests.gpu.context import Context, Findings


def run(context: Context) -> Findings:
    pool = ProcessPoolExecutor(
        1,
        multiprocessing.get_context("forkserver"),
        initializer=os.setpgid,
        initargs=(0, os.getpgrp()),
    )
    worker = pool.submit(os.getpid).result()
    server = subprocess.Popen(["sleep", "1000"])  # noqa: S607 - a test's
    (context.work / "lingering").write_text(f"{worker} {server.pid}")
    time.sleep(1_000)
    return {}
