"""Server processes for measurements: `attendant serve` on loopback."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

_ATTENDANT = Path(sys.executable).with_name("attendant")
_MODULE = (sys.executable, "-m", "commands")  # of a checkout that is not installed
SERVE = (*((str(_ATTENDANT),) if _ATTENDANT.exists() else _MODULE), "serve")
SLEEPING = (sys.executable, "-m", "loadtests.load.sleeping")
STOP_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A process that is ready for requests."""

    process: "subprocess.Popen[str]"
    port: int
    metrics_url: str = ""
    http_address: str = ""  # where the flags open the port

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def process_id(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def resident_mib(self) -> float:
        return resident_mib(self.process_id)

    def stop(self) -> None:
        """Ask it to end, and wait until it has answered what it admitted."""
        self.process.terminate()
        try:
            self.process.wait(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


def start_server(
    repository: Path,
    flags: Sequence[str] = (),
    port: int = 0,
    command: Sequence[str] = SERVE,
    log: Path | None = None,
) -> Server:
    """Start a server over a repository and wait until it is ready; port 0 picks a free one.

    Its log goes into a file, or where there is none, to standard error.
    """
    ports = ["--grpc-port", str(port), "--http-port=-1", "--metrics-port", "0"]
    quiet = ["--log-level", "warning"]
    with log.open("a") if log is not None else nullcontext() as errors:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "--model-repository", str(repository), *ports, *quiet, *flags],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        http_address, line = "", "-"
        while line and not line.startswith("gRPC "):  # the last line; others may stand before
            line = process.stdout.readline()
            if line.startswith("HTTP "):  # "HTTP URL", where the port is open
                http_address = line.split()[1].partition("//")[2]
        _, address, _, metrics_url = line.split()  # "gRPC HOST:PORT  metrics URL"
        return Server(process, int(address.rsplit(":", 1)[1]), metrics_url, http_address)
    except BaseException:
        process.kill()
        raise


def flags_of(settings: Mapping[str, object]) -> list[str]:
    """Settings as flags of `attendant serve`."""
    flags = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            flags.append(f"--{flag}={value}")
    return flags


@contextmanager
def serving(
    repository: Path, flags: Sequence[str] = (), command: Sequence[str] = SERVE
) -> Iterator[Server]:
    """Start a server over a repository; it is gone after the block."""
    server = start_server(repository, flags, command=command)
    try:
        yield server
    finally:
        server.stop()


def resident_mib(process_id: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
