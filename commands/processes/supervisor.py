"""Starts the processes of a server, answers for all on the port of the metrics, and ends them.

The ports are shared: the kernel gives each new connection to one of the processes. One that ends by
itself ends the server, as it would if it were alone: what clients have changed since the start
(loaded models, registered memory) was in it, and whatever runs the server starts all anew.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from prometheus_client import make_wsgi_app
from prometheus_client.registry import CollectorRegistry

from commands.processes.member import Part
from service.app import stopping_signals
from service.errors import LoadError, SettingError
from service.observe.page import MetricsServer
from service.observe.probes import with_probes
from service.open_ports import Opened, Ports
from service.rpc.ports import check_port, keep_port
from service.runtime.cpus import available_cpus
from service.settings import Settings, join_address
from service.team.merging import Merged
from service.team.siblings import read_port

logger = logging.getLogger(__name__)
PROBE_TIMEOUT_S = 2.0  # of one process's answer
KILL_AFTER_S = 10.0  # beyond the time in which a process drains by its settings
LOOPBACK = "127.0.0.1"
FLAGS = {
    "gRPC": ("--host", "--grpc-port"),
    "HTTP": ("--http-host", "--http-port"),
    "administration": ("--admin-host", "--admin-port"),
}


def shares(cpus: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """Processors for each of several processes, whose numbers differ by one at most."""
    ends = [len(cpus) * index // count for index in range(count + 1)]
    return [tuple(cpus[start:end]) for start, end in pairwise(ends)]


def check_processes(settings: Settings, num_cpus: int) -> None:
    """Raise `SettingError` for what several processes cannot do together."""
    if settings.processes > num_cpus:
        raise SettingError(
            f"--processes is {settings.processes}, expected at most {num_cpus}, the processors "
            "that this server may use"
        )
    if settings.batch_folder:
        raise SettingError(
            f"--processes is {settings.processes} and --batch-folder is set, expected one of them: "
            "files of batches are worked on by one process"
        )


class _Member:
    """A process, and what it has said."""

    def __init__(self, index: int, process: asyncio.subprocess.Process) -> None:
        self.index, self.process = index, process
        self.answer: dict[str, Any] | None = None  # once it is ready, or has failed

    async def listen(self) -> None:
        """Return once it is ready or has ended."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if line:
            self.answer = json.loads(line)

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    @property
    def ended_badly(self) -> bool:
        """Whether it ended otherwise than by draining, or by a stop before it could."""
        return self.process.returncode not in (0, -signal.SIGTERM)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class Supervisor:
    """All processes of one server; probes of the metrics port read it on any thread."""

    def __init__(self, settings: Settings, log_level: str) -> None:
        """Keep the ports. Raises `SettingError` and `LoadError`."""
        num_cpus = available_cpus()
        check_processes(settings, num_cpus)
        self._log_level = log_level
        self._count = settings.processes
        self._members: list[_Member] = []
        self._is_ready = self._is_leaving = False
        self._kept: list[socket.socket] = []
        cpus = sorted(os.sched_getaffinity(0))
        is_limited = num_cpus < len(cpus)  # by a quota of time, which no processor belongs to
        self._cpus = [()] * self._count if is_limited else shares(cpus, self._count)
        threads = settings.num_threads or (num_cpus // self._count if is_limited else 0)
        http_host = settings.http_host or settings.host
        self._trace_folders = _folders_in(settings.trace_folder, self._count)
        self._ports = Ports(
            grpc=self._keep("gRPC", settings.host, settings.grpc_port),
            http=self._keep_wanted("HTTP", http_host, settings.http_port),
            admin=self._keep_wanted("administration", settings.admin_host, settings.admin_port),
            metrics=settings.metrics_port,
        )
        self._settings = replace(
            settings,
            num_threads=threads,
            grpc_port=self._ports.grpc,
            http_port=-1 if self._ports.http is None else self._ports.http,
            admin_port=-1 if self._ports.admin is None else self._ports.admin,
        )

    def _keep_wanted(self, purpose: str, host: str, port: int) -> int | None:
        return None if port < 0 else self._keep(purpose, host, port)

    def _keep(self, purpose: str, host: str, port: int) -> int:
        """Hold a port that its processes share, so that it stays theirs; its number."""
        check_port(host, port, purpose, FLAGS[purpose])  # another server on it is an error
        kept = keep_port(host, port, purpose, FLAGS[purpose], is_shared=True)
        self._kept.append(kept)
        return int(kept.getsockname()[1])

    @property
    def is_live(self) -> bool:
        return not self.lifeless_reason

    @property
    def is_ready(self) -> bool:
        return not self.unready_reason

    @property
    def lifeless_reason(self) -> str:
        """Reason of the first process that does not live; empty if all do."""
        return next(self._obstacles("live"), "")

    @property
    def unready_reason(self) -> str:
        """Reason of the first process that is not ready; empty if all are."""
        if self._is_leaving:
            return "the server is stopping"
        if not self._is_ready:
            return "the processes are being started"
        return next(self._obstacles("ready"), "")

    def _obstacles(self, state: str) -> Iterator[str]:
        for member in self._members:
            place = f"process {member.index + 1} of {self._count}"
            if not member.is_running:
                yield f"{place} has ended"
            elif (port := read_port(self._folder, member.index)) is not None:
                try:
                    _read(port, f"/v2/health/{state}")
                except urllib.error.HTTPError as error:
                    yield f"{place}: {json.loads(error.read()).get('error', 'no reason')}"
                except OSError as error:
                    yield f"{place} does not answer: {error}"

    def _pages(self) -> Iterator[bytes]:
        for index in range(self._count):
            if (port := read_port(self._folder, index)) is not None:
                yield _read(port, "/metrics")

    async def run(self, on_ready: Callable[[Opened], Awaitable[None]]) -> None:
        """Serve until SIGTERM, SIGINT or SIGHUP, then drain. Raises `LoadError`."""
        stopping = asyncio.Event()
        for number in stopping_signals():
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, stopping)
        settings = self._settings
        host, port = settings.metrics_host, settings.metrics_port
        check_port(host, port, "metrics", ("--metrics-host", "--metrics-port"))
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Merged(self._pages))
        with tempfile.TemporaryDirectory(prefix="attendant-") as folder:
            self._folder = Path(folder)
            metrics = MetricsServer(host, port, with_probes(make_wsgi_app(registry), self))
            metrics.start()
            self._ports = replace(self._ports, metrics=metrics.server_port)
            logger.info("metrics are open on %s", join_address(host, metrics.server_port))
            try:
                await self._until_stopped(stopping, on_ready)
            finally:
                await self._end()
                await asyncio.to_thread(metrics.stop)
                for kept in self._kept:
                    kept.close()
            if failed := [each for each in self._members if each.ended_badly]:
                raise self._ended(failed[0])

    async def _until_stopped(
        self, stopping: asyncio.Event, on_ready: Callable[[Opened], Awaitable[None]]
    ) -> None:
        for index in range(self._count):
            self._members.append(await self._start(index))
        ended = [asyncio.create_task(each.process.wait()) for each in self._members]
        started = asyncio.gather(*(each.listen() for each in self._members))
        stopped = asyncio.create_task(stopping.wait())
        waiting: set[asyncio.Future[Any]] = {started, stopped, *ended}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            with suppress(TimeoutError):  # of the words of one that has just ended
                await asyncio.wait_for(asyncio.shield(started), 1.0 if _any_done(ended) else None)
            self._raise_of_ended()
            self._is_ready = True
            models = (self._members[0].answer or {}).get("models", [])
            await on_ready(Opened(self._ports, tuple(map(tuple, models))))
            await asyncio.wait({stopped, *ended}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.is_set():
            self._raise_of_ended()
        logger.info("stopping")

    async def _start(self, index: int) -> _Member:
        settings = replace(
            self._settings,
            processes=1,
            metrics_host=LOOPBACK,
            metrics_port=0,
            trace_folder=self._trace_folders[index],
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "commands.processes.member",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # signals of a terminal come from here alone
        )
        part = Part(
            asdict(settings),
            index,
            self._count,
            str(self._folder),
            self._cpus[index],
            self._log_level,
        )
        assert process.stdin is not None
        process.stdin.write(part.to_line())
        await process.stdin.drain()
        return _Member(index, process)

    def _raise_of_ended(self) -> None:
        """Raise what a process said at its end."""
        for member in self._members:
            if member.answer is not None and "error" in member.answer:
                raise LoadError(member.answer["error"])
        for member in self._members:
            if not member.is_running:
                raise self._ended(member)

    def _ended(self, member: _Member) -> LoadError:
        code = member.process.returncode or 0
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return LoadError(
            f"process {member.index + 1} of {self._count} ended ({how}), and with it the "
            "server: its log says why"
        )

    def _signalled(self, stopping: asyncio.Event) -> None:
        if stopping.is_set():  # again: nothing is waited for any more
            self._tell_all()
        stopping.set()

    def _tell_all(self) -> None:
        for member in self._members:
            member.signal(signal.SIGTERM)

    async def _end(self) -> None:
        """Drain all processes at once; those that take too long are killed."""
        self._is_leaving = True
        self._tell_all()
        settings = self._settings
        limit_s = settings.drain_delay_s + settings.drain_timeout_s + KILL_AFTER_S
        ending = [asyncio.create_task(each.process.wait()) for each in self._members]
        if ending:
            _, late = await asyncio.wait(ending, timeout=limit_s)
            if late:
                logger.warning(
                    "%d processes did not end in %g s and are killed", len(late), limit_s
                )
        for member in self._members:
            member.signal(signal.SIGKILL)


def _folders_in(folder: str, count: int) -> list[str]:
    """A folder of trace files for each process: several would take the same names."""
    if not folder:
        return [""] * count
    folders = [Path(folder) / f"process-{index + 1}" for index in range(count)]
    try:
        for each in folders:
            each.mkdir(exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"--trace-folder is '{folder}', which cannot be used: {error}"
        ) from error
    return list(map(str, folders))


def _any_done(tasks: Sequence[asyncio.Task[Any]]) -> bool:
    return any(task.done() for task in tasks)


def _read(port: int, path: str) -> bytes:
    address = f"http://{LOOPBACK}:{port}{path}"
    with urllib.request.urlopen(address, timeout=PROBE_TIMEOUT_S) as answer:
        content: bytes = answer.read()
    return content
