"""A server process for measurements: `attendant serve` on free ports."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Server:
    """A process that is ready for requests."""

    process: "subprocess.Popen[str]"
    port: int

    @property
    def process_id(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@contextmanager
def serving(repository: Path, flags: Sequence[str] = ()) -> Iterator[Server]:
    """Start a server over a repository; it is gone after the block."""
    command = [str(Path(sys.executable).with_name("attendant")), "serve"]
    ports = ["--grpc-port", "0", "--metrics-port", "0", "--log-level", "warning"]
    process = subprocess.Popen(  # noqa: S603 - our own command
        [*command, "--model-repository", str(repository), *ports, *flags],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # "gRPC HOST:PORT  metrics URL"
        yield Server(process, int(line.split()[1].rsplit(":", 1)[1]))
    finally:
        process.terminate()
        process.wait(timeout=60)
