"""A bulk job: its rate over the bare session's, and what it does to calls beside it.

    python -m loadtests.measure bulk --model minilm --texts lines.txt

`attendant embed --input FILE --output FILE` beside the session alone, whose batches are made
beforehand, and beside the same job over a file whose lines are in order of length, which shows what
ordering them would gain. Then turns of calls of one text each, at a constant rate and at random
moments, with and without a job beside them: in the background, as jobs are, and in the foreground,
as other clients are. A call's latency counts from when it was due.
"""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from attendant.v1 import text_pb2, text_pb2_grpc

from loadtests.load.lengths import SEED, mixed_texts
from loadtests.load.server import Server, serving
from loadtests.measure.batching import BARE, TextOptions, bare_way, read_samples, rows_of
from loadtests.measure.records import Column, Measure, Turn, Way, by_columns, option, percentiles

EMBED = (sys.executable, "-m", "commands", "embed")
RATE = re.compile(r"([\d,]+) lines were answered, ([\d,]+)/s")
ROWS_ANSWERED = "nv_inference_count"
SETTLED_LINES = 512  # of a job before calls begin
WATCH_S = 0.1  # between two looks at how many there are
STOP_S = 30.0
CALL_TIMEOUT_S = 60.0
CALLS, JOB = "calls alone", "job alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOptions(TextOptions):
    """The job, and the calls."""

    texts: Path | None = option(None, "One text per line; by default some of real lengths.")
    limit: int = option(20_480, "Lines of a job.", min=64)
    calls_per_s: float = option(2.0, "Calls of one text.", min=0.1)
    seconds: float = option(30.0, "Of each turn with calls.", min=0.1)
    in_flight: int = option(4, "Requests of the job in flight.", min=1)
    rounds: int = option(3, "Rounds that count.", min=1)


def ways(options: BulkOptions, stack: ExitStack) -> dict[str, Way]:
    """Whole jobs, and calls with and without one beside them."""
    loaded = options.opened()
    lines = _lines(options.texts, options.limit)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    # Beside a job in the foreground calls would be refused, which ends a measurement.
    server = stack.enter_context(serving(options.repository, options.flags))
    job, ordered = (
        Jobs(
            folder, _written(folder / f"{name}.txt", each), options.model, server, options.in_flight
        )
        for name, each in (("texts", lines), ("ordered", sorted(lines, key=len)))
    )
    bare = bare_way(loaded, rows_of(loaded, options.model, lines)[0])
    beside = Beside(job, options.model, lines, options.calls_per_s, options.seconds)
    return {
        BARE: lambda: {"seconds": bare(), "lines": len(lines)},
        "job, from start to end": job.whole,
        "job, shortest lines first": ordered.whole,
        CALLS: beside.calls_alone,
        JOB: beside.job_alone,
        "calls beside the job": beside.both,
        "calls beside a job in the foreground": partial(beside.both, "--foreground"),
    }


def _lines(texts: Path | None, limit: int) -> list[str]:
    """Lines of the file, repeated in a random order where it has fewer."""
    if texts is None:
        return mixed_texts(limit)
    known = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    return known[:limit] if len(known) >= limit else random.Random(SEED).choices(known, k=limit)


def _written(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@dataclass(frozen=True, slots=True)
class Jobs:
    """Runs of `attendant embed` over one file, each into a new one."""

    folder: Path
    path: Path
    model: str
    server: Server
    in_flight: int

    def command(self, output: Path, *more: str) -> list[str]:
        named = ["--input", str(self.path), "--output", str(output), "--restart", *more]
        bounds = ["--in-flight", str(self.in_flight), "--address", self.server.address]
        return [*EMBED, self.model, *named, *bounds, "--truncate"]

    def whole(self) -> Turn:
        """The rate that a job reports of itself, start and end included."""
        command = self.command(self.folder / "whole.npy")
        ended = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        reported = RATE.search(" ".join(ended.stderr.split()))
        assert reported is not None, ended.stderr
        return {"seconds": 1.0, "lines": float(reported[2].replace(",", ""))}

    @contextmanager
    def running(self, *more: str) -> Iterator[None]:
        """Jobs under way, one after the other; killed after the block."""
        output = self.folder / "part.npy"
        alive = f"kill -0 {os.getpid()} 2>/dev/null"  # jobs end with the process that measures
        script = f"while {alive}; do {' '.join(self.command(output, *more))} || exit; done"
        with subprocess.Popen(  # noqa: S603
            ["/bin/sh", "-c", script], stderr=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                yield
            finally:
                os.killpg(process.pid, signal.SIGKILL)  # its output is not needed
                process.wait(STOP_S)


@dataclass(frozen=True, slots=True)
class Beside:
    """Calls and a job, alone and together."""

    job: Jobs
    model: str
    lines: Sequence[str]
    calls_per_s: float
    seconds: float

    def calls_alone(self) -> Turn:
        return percentiles(self._calls())

    def job_alone(self) -> Turn:
        with self.job.running():
            return self._during(self._idle)

    def both(self, *more: str) -> Turn:
        with self.job.running(*more):
            return self._during(self._calls)

    def _during(self, calls: Callable[[], list[float]]) -> Turn:
        """Lines of the job that were answered during the calls, and the latencies of these."""
        until, end_s = self._answered() + SETTLED_LINES, time.monotonic() + STOP_S
        while self._answered() < until:
            assert time.monotonic() < end_s, "a job began"
            time.sleep(WATCH_S)
        before, began_s = self._answered(), time.monotonic()
        latencies_s = calls()
        num_lines = self._answered() - before - len(latencies_s)
        turn = {"seconds": time.monotonic() - began_s, "beside": num_lines}
        return {**turn, **percentiles(latencies_s)} if latencies_s else turn

    def _idle(self) -> list[float]:
        time.sleep(self.seconds)
        return []

    def _answered(self) -> float:
        """Rows that the server has answered so far."""
        samples = read_samples(self.job.server.metrics_url)
        return sum(sample.value for sample in samples if sample.name == ROWS_ANSWERED)

    def _calls(self) -> list[float]:
        return asyncio.run(
            _call(self.job.server.address, self.model, self.lines, self.calls_per_s, self.seconds)
        )


async def _call(
    address: str, model: str, lines: Sequence[str], calls_per_s: float, seconds: float
) -> list[float]:
    """Seconds of each call since it was due; the moments are the same in every turn."""
    generator = random.Random(SEED)
    due_s, moments_s = 0.0, []
    while (due_s := due_s + generator.expovariate(calls_per_s)) < seconds:
        moments_s.append(due_s)
    async with grpc.aio.insecure_channel(address) as channel:
        embed: Any = text_pb2_grpc.TextServiceStub(channel).Embed
        began_s = time.monotonic()

        async def ask(moment_s: float) -> float:
            request = text_pb2.EmbedRequest(
                model=model, texts=[lines[int(moment_s * 1e3) % len(lines)]], truncate=True
            )
            await asyncio.sleep(began_s + moment_s - time.monotonic())
            await embed(request, timeout=CALL_TIMEOUT_S)
            return time.monotonic() - began_s - moment_s

        latencies_s = await asyncio.gather(*map(ask, moments_s))
        left_s = began_s + seconds - time.monotonic()
        await asyncio.sleep(max(0.0, left_s))
    return list(latencies_s)


BULK = Measure(
    "bulk",
    "A bulk job beside the session alone, and calls beside a job",
    "Load and bulk work",
    BulkOptions,
    ways,
    by_columns(
        Column("lines/s", "lines/seconds"),
        Column("over bare", "lines/seconds", over=BARE),
        Column("lines/s beside calls", "beside/seconds"),
        Column("over the job alone", "beside/seconds", over=JOB),
        Column("p50 of calls", "p50_s", "ms"),
        Column("p99 of calls", "p99_s", "ms"),
        Column("p99 over calls alone", "p99_s", over=CALLS),
    ),
)
