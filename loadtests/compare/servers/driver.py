"""The worker of every server: starts it, and asks it for texts through its client.

Runs in our own environment, and only the server in its own, so that all have the same client.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from loadtests.compare.servers.clients import Client
from loadtests.compare.servers.launching import LAUNCHES, Launch, Place, environ_of
from loadtests.compare.servers.loops import closed_loop, open_loop
from loadtests.compare.worker import Answer, Run, Setup, Work, serve

READY_LIMIT_S = 180.0
RETRY_S = 0.3
END_LIMIT_S = 6.0  # less than the driver itself is given
FIRST_TEXT = "is it ready"
stack = ExitStack()  # what ends with the driver


def open_server(setup: Setup) -> Run:
    """`options`: the server's name in `launching.py`, and rows of a batch."""
    scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=setup.scratch))
    place = Place(
        model=Path(setup.model),
        python=Path(setup.python),
        scratch=Path(scratch),
        ports=free_ports(),
        threads=setup.threads,
        rows=setup.options.get("rows", 0),
        flags=setup.options.get("flags", ()),
        pooling=setup.options.get("pooling", ""),
        max_tokens=setup.options.get("max_tokens", 0),
    )
    launch = LAUNCHES[setup.options["server"]](place)
    process = stack.enter_context(started(launch, place))
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(ready_client(launch.client, lambda: process.poll() is None))
    capacities: dict[str, float] = {}

    def run(work: Work) -> Answer:
        texts = work.texts
        kind = f"{work.concurrency} clients, {texts}"
        if not work.of_capacity or kind not in capacities:
            answer = loop.run_until_complete(closed_loop(client.ask, texts, work.concurrency))
            capacities[kind] = len(texts) / answer.seconds
        if work.of_capacity:
            rate = work.of_capacity * capacities[kind]
            answer = loop.run_until_complete(open_loop(client.ask, texts, rate))
        client.rest()
        return answer

    return run


def free_ports() -> tuple[int, int, int]:
    """A port on which nothing listens now."""
    with ExitStack() as sockets:
        found = [sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        first, second, third = (each.getsockname()[1] for each in found)
        return first, second, third


@contextmanager
def started(launch: Launch, place: Place) -> Iterator["subprocess.Popen[bytes]"]:
    """The server's process: SIGTERM, then SIGKILL."""
    process = subprocess.Popen(  # noqa: S603 - as launching.py has it
        launch.command,
        stdin=subprocess.PIPE,
        stdout=sys.stderr,
        cwd=place.scratch,
        env={**os.environ, **environ_of(place, launch)},
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def ready_client(make: Callable[[], Client], is_running: Callable[[], bool]) -> Client:
    """A client whose first text was answered: the one sign of readiness that all servers have."""
    fault: Exception | None = None
    try:
        async with asyncio.timeout(READY_LIMIT_S):
            client = make()
            while is_running():
                try:
                    await client.ask(FIRST_TEXT)
                except Exception as error:  # not yet, whatever its way to say so
                    fault = error
                    await asyncio.sleep(RETRY_S)
                else:
                    client.rest()
                    return client
    except TimeoutError:
        raise RuntimeError(f"not ready within {READY_LIMIT_S:g} s: {fault}") from fault
    raise RuntimeError("the server ended before it was ready")


if __name__ == "__main__":
    with stack:
        serve(open_server)
    if os.getpgrp() == os.getpid():  # whatever the server has left behind
        os.killpg(os.getpgrp(), signal.SIGKILL)
