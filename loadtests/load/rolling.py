"""`Replicas`: servers over one repository, and restarting them one after the other under load.

What a rolling update does in a cluster, without one: a replica gets SIGTERM, says that
it is not ready and serves on for `--drain-delay-s`, answers what it admitted, and is started anew
on its port. The next one's turn comes when it has been ready for a while, since clients must have
found it again: a cluster calls that `minReadySeconds`.
"""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from loadtests.load.scenario import ServerPlan
from loadtests.load.server import SERVE, SLEEPING, Server, start_server

COMMANDS = {"attendant": SERVE, "sleeping": SLEEPING}


@dataclass(frozen=True, slots=True)
class Restart:
    """One replica's. Seconds."""

    replica: int
    at_s: float  # from the start of the load
    ending_s: float  # from SIGTERM to the end of the process
    starting_s: float  # until it was ready again


class Replicas:
    """Servers; they are gone after the block."""

    def __init__(self, repository: Path, plan: ServerPlan) -> None:
        self._repository = repository
        self._plan = plan
        self._servers: list[Server] = []

    def __enter__(self) -> Self:
        with ThreadPoolExecutor(self._plan.replicas) as pool:
            starts = [pool.submit(self._start, 0) for _ in range(self._plan.replicas)]
        # All are waited for before one that failed is reported: the others must be stopped.
        self._servers = [start.result() for start in starts if not start.exception()]
        if len(self._servers) < len(starts):
            self.__exit__(None, None, None)
            raise RuntimeError("a server did not become ready: its messages are above")
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # so that one that does not end leaves none of the others
            for server in self._servers:
                stack.callback(server.stop)

    @property
    def addresses(self) -> Sequence[str]:
        return [server.address for server in self._servers]

    def roll(self, start_s: float, is_over: threading.Event) -> list[Restart]:
        """Restart each in turn, as often as planned, or until the load is over."""
        restarts = []
        for number in range(self._plan.rolling_restarts * self._plan.replicas):
            if is_over.wait(self._plan.settle_s):
                break
            restarts.append(self._restart(number % self._plan.replicas, start_s))
        return restarts

    def _restart(self, replica: int, start_s: float) -> Restart:
        began_s = time.monotonic()
        server = self._servers[replica]
        server.stop()
        ended_s = time.monotonic()
        self._servers[replica] = self._start(server.port)
        ready_s = time.monotonic()
        return Restart(replica, began_s - start_s, ended_s - began_s, ready_s - ended_s)

    def _start(self, port: int) -> Server:
        command = COMMANDS[self._plan.command]
        return start_server(self._repository, self._plan.flags, port, command)
