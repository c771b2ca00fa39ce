"""A server process: `attendant serve` on free ports, watched through what it prints."""

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

ATTENDANT = Path(sys.executable).with_name("attendant")
PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
START_LIMIT_S = 60.0  # generous: the cores are shared with other tests
STOP_LIMIT_S = 60.0
POLL_S = 0.005  # where there is no event to wait for
READY = re.compile(r"gRPC (\S+)\s+metrics (http://\S+/metrics)")
HTTP = re.compile(r"HTTP https?://(\S+)")


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now."""
    with ExitStack() as stack:
        servers = (socket.create_server(("127.0.0.1", 0)) for _ in range(count))
        return [stack.enter_context(server).getsockname()[1] for server in servers]


class ServerProcess:
    """Starts with the `with` block, and is gone after it.

    `start_s` is how long it took to be ready, without the time for which the processors were
    taken by others: tests share them.
    """

    def __init__(
        self, repository: Path, *flags: str, command: Sequence[str] = (str(ATTENDANT), "serve")
    ) -> None:
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - see __exit__
        self._lines: queue.Queue[str | None] = queue.Queue()
        ports = ("--grpc-port", "0", "--http-port=-1", "--metrics-port", "0")
        self._started_s = time.monotonic()
        self.process = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "--model-repository", repository, *ports, *flags],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | PLAIN,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        try:
            self.address, self.metrics_url, self.http_address = self._wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.start_s = time.monotonic() - self._started_s - self._starved_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self, timeout_s: float = STOP_LIMIT_S) -> int:
        """Wait for the process to end by itself."""
        return self.process.wait(timeout_s)

    def log(self) -> str:
        """What it wrote to stderr so far."""
        return os.pread(self._log.fileno(), 2**20, 0).decode()

    def metrics(self) -> dict[tuple[str, str], float]:
        """Every sample by name and model; the other labels are summed over."""
        with urlopen(self.metrics_url, timeout=10) as page:  # noqa: S310 - http, our own
            text = page.read().decode()
        found: dict[tuple[str, str], float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                key = sample.name, sample.labels.get("model", "")
                found[key] = found.get(key, 0.0) + sample.value
        return found

    def metric(self, name: str, model: str) -> float:
        return self.metrics()[name, model]

    def wait_for(self, name: str, model: str, value: float) -> None:
        """Until a metric has a value; there is no event for that."""
        eventually(lambda: self.metric(name, model) == value, f"{name} of {model} is {value}")

    def _starved_s(self) -> float:
        """How long it could have run while others had the processors.

        Starting is one thing after the other: on the main thread, and on the one that loads.
        Threads that wait beside these two hold nothing up.
        """
        waited_s = {thread: waited_ns / 1e9 for thread, (_, waited_ns) in self._scheduled()}
        main_s = waited_s.pop(self.process.pid)
        return main_s + max(waited_s.values(), default=0.0)

    def _scheduled(self) -> Iterator[tuple[int, tuple[int, int]]]:
        """Of each thread, how long it ran and waited for a processor, in nanoseconds.

        A thread may end between its listing and its reading: then it is left out.
        """
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                ran_ns, waited_ns, _ = map(int, (task / "schedstat").read_text().split())
                yield int(task.name), (ran_ns, waited_ns)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _wait_until_ready(self) -> tuple[str, str, str]:
        """The addresses of gRPC, of metrics, and of HTTP, which is empty without that port."""
        until_s = self._started_s + START_LIMIT_S
        http_address = ""
        while (remaining_s := until_s - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=remaining_s)
            except queue.Empty:
                break
            if line is None:
                raise AssertionError(f"the server ended before it was ready:\n{self.log()}")
            if match := HTTP.match(line):
                http_address = match[1]
            if match := READY.search(line):
                return match[1], match[2], http_address
        raise AssertionError(f"the server was not ready in {START_LIMIT_S} s:\n{self.log()}")


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """What the block does must not take longer."""
    started_s = time.monotonic()
    yield
    took_s = time.monotonic() - started_s
    assert took_s < limit_s, f"took {took_s:.2f} s, the limit is {limit_s} s"


def eventually(is_so: Callable[[], bool], claim: str, limit_s: float = 20.0) -> None:
    until_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < until_s, f"not within {limit_s} s: {claim}"
        time.sleep(POLL_S)
