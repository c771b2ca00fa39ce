"""Sends bodies to a server process, and watches meanwhile how long others wait and what it takes.

Others are a call that the event loop answers, and one that a model does, each sent by a process of
its own. Memory is the peak of the
process above what it had, as Linux counts it.
"""

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPConnection
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.e2e.server import ServerProcess
from tests.fakes.chats import TOOLS
from tests.hostile.bodies import Description, Hole
from tests.hostile.messages import Caller, message_of

LOOP_PATH = "/v2"
CALL_PATH, CALL = "/models/spam/classify", json.dumps({"input": "free prize"}).encode()
PAUSE_S = 0.005  # between two calls of a watcher
TIMEOUT_S = 180.0
MAX_CALLS = 2_000_000  # of a watcher
MEMORY_FROM_BYTES = 500_000  # of a body: that of a smaller one is lost among everything else
MODELS = ("minilm", "spam", "gpt")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one body did."""

    path: str
    hole: Hole
    num_bytes: int
    status: int = 0  # HTTP's, 0: none in time; or the number of gRPC's, 0: OK
    answer: str = ""
    took_s: float = 0.0
    waited_s: float = 0.0  # longest, of the call that the event loop answers
    grown_bytes: int = 0

    @property
    def ratio(self) -> float:
        """Bytes of memory for one of the body; 0 where it is too small to tell."""
        return self.grown_bytes / self.num_bytes if self.num_bytes >= MEMORY_FROM_BYTES else 0.0


class Watcher:
    """Asks again and again in a process of its own, and keeps how long each answer took.

    In the process that makes and sends the long bodies it would wait for these, not for the server.
    """

    def __init__(self, address: str, method: str, path: str, body: bytes | None = None) -> None:
        context = get_context("spawn")
        self._latencies_s = context.RawArray("d", MAX_CALLS)
        self._num_calls = context.RawValue("l", 0)
        self._process = context.Process(
            target=_watch,
            args=(address, method, path, body, self._latencies_s, self._num_calls),
            daemon=True,
        )

    @property
    def num_calls(self) -> int:
        return int(self._num_calls.value)

    def latencies_s(self, first: int = 0, end: int | None = None) -> list[float]:
        """Seconds of the calls that ended, from the `first` one on."""
        return list(self._latencies_s[first : self.num_calls if end is None else end])

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._process.start()
        try:
            yield
        finally:
            self._process.terminate()
            self._process.join()


def _watch(
    address: str, method: str, path: str, body: bytes | None, latencies_s: Any, num_calls: Any
) -> None:
    host, _, port = address.rpartition(":")
    connection = HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    while num_calls.value < MAX_CALLS:
        began_s = time.monotonic()
        connection.request(method, path, body)
        connection.getresponse().read()
        latencies_s[num_calls.value] = time.monotonic() - began_s
        num_calls.value += 1
        time.sleep(PAUSE_S)


def write_repository(models: Path, folder: Path) -> None:
    """The default models, the generative one with a chat template."""
    for name in MODELS:
        shutil.copytree(models / name, folder / name)
    (folder / "gpt" / "1" / "chat_template.jinja").write_text(TOOLS)


class Target:
    """A server under fire."""

    def __init__(self, server: ServerProcess) -> None:
        self.address = server.http_address
        self._caller = Caller(server.address)
        self._proc = Path(f"/proc/{server.process.pid}")
        self.loop = Watcher(self.address, "GET", LOOP_PATH)
        self.call = Watcher(self.address, "POST", CALL_PATH, CALL)

    def description(self) -> Description:
        host, _, port = self.address.rpartition(":")
        connection = HTTPConnection(host, int(port), timeout=TIMEOUT_S)
        connection.request("GET", "/openapi.json")
        return Description(json.load(connection.getresponse()))

    def send(self, path: str, hole: Hole, num_bytes: int) -> Outcome:
        """Send one body over HTTP while the watchers ask."""
        body = hole.body(num_bytes)
        post = partial(_post, self.address, path, body)
        return self._watched(Outcome(path, hole, len(body)), post)

    def send_message(self, path: str, hole: Hole, num_bytes: int) -> Outcome | None:
        """Send a body of `/api` as a message over gRPC; None where it is no message."""
        found = message_of(path, json.loads(hole.body(num_bytes)))
        if found is None:
            return None
        method, message = found
        post = partial(self._caller.post, method, message)
        return self._watched(Outcome(method, hole, len(message)), post)

    def _watched(self, outcome: Outcome, post: Callable[[], tuple[int, str]]) -> Outcome:
        (self._proc / "clear_refs").write_text("5")  # the peak becomes what there is now
        before = self._memory("VmRSS")
        first = self.loop.num_calls
        started_s = time.monotonic()
        status, answer = post()
        took_s = time.monotonic() - started_s
        count = self.loop.num_calls
        while self.loop.num_calls < count + 2:  # one that began after it
            time.sleep(PAUSE_S)
        waited_s = max(self.loop.latencies_s(first))
        grown = max(0, self._memory("VmHWM") - before)
        return replace(
            outcome,
            status=status,
            answer=answer,
            took_s=took_s,
            waited_s=waited_s,
            grown_bytes=grown,
        )

    def _memory(self, name: str) -> int:
        """Bytes, by the kernel's name of them."""
        for line in (self._proc / "status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"the kernel has no {name}")


def _post(address: str, path: str, body: bytes) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-length: {len(body)}\r\n\r\n"
    try:
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):  # answered before it was whole
                connection.sendall(head.encode() + body)
            answer = bytearray()
            while piece := connection.recv(2**16):
                answer += piece[: max(0, 2**12 - len(answer))]
    except OSError:
        return 0, ""
    status = answer.split(b" ", 2)[1:2]
    text = bytes(answer).partition(b"\r\n\r\n")[2][:300].decode(errors="replace")
    return (int(status[0]) if status else 0), text
