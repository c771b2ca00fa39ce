"""Measure a bulk job: its rate over the bare session's, and what it does to calls beside it.

    python -m loadtests.measure.bulk --model minilm --texts lines.txt
    python -m loadtests.measure.bulk --model minilm --texts lines.txt --plot docs/pictures/bulk.png

First `attendant embed --input FILE --output FILE` in turns with the session alone, whose batches
are made beforehand (`loadtests.measure.batching`), and with the same job over a file whose lines
are in order of length, which shows what ordering them would gain. Then turns of calls of one text
each, at a constant rate and at random moments, with and without a job beside them: in the
background, as jobs are, and in the foreground, as other clients are. A call's latency counts from
when it was due.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import grpc
import numpy as np
import typer
from attendant.v1 import text_pb2, text_pb2_grpc
from rich.console import Console
from rich.table import Table

from loadtests.load.lengths import mixed
from loadtests.load.server import Server, serving
from loadtests.load.turns import Spread, spread, take_turns, turns
from loadtests.measure.batching import SEED, bare_way, read_samples, rows_of
from service.contract.files import ModelSource
from service.repository.loading import LoadedVersion, Openers, load_model
from service.settings import Settings

EMBED = (sys.executable, "-m", "commands", "embed")
RATE = re.compile(r"([\d,]+) lines were answered, ([\d,]+)/s")
ROWS_ANSWERED = "nv_inference_count"
SETTLED_LINES = 512  # of a job before calls begin
WATCH_S = 0.1  # between two looks at how many there are
STOP_S = 30.0
CALL_TIMEOUT_S = 60.0
JOB, ORDERED = "job", "job, shortest lines first"
WAYS = ("calls alone", "job alone", "both, background", "both, foreground")


@dataclass(slots=True)
class Turn:
    """What one turn gave."""

    latencies_s: list[float] = field(default_factory=list)
    lines_per_s: float = 0.0


def main(
    texts: Annotated[
        Path | None, typer.Option(help="One text per line; by default some of real lengths.")
    ] = None,
    model: Annotated[str, typer.Option(help="An embedder of the repository.")] = "minilm",
    repository: Annotated[Path, typer.Option(help="Where the model is.")] = Path(
        "model_repository"
    ),
    limit: Annotated[int, typer.Option(min=2_048, help="Lines of a job.")] = 20_480,
    rounds: Annotated[int, typer.Option(min=1, help="Counted rounds after one to warm up.")] = 5,
    calls_per_s: Annotated[float, typer.Option(min=0.1, help="Calls of one text.")] = 2.0,
    seconds: Annotated[float, typer.Option(min=5, help="Of each turn with calls.")] = 30.0,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests of the job in flight.")] = 4,
    flag: Annotated[
        list[str] | None, typer.Option(help="Flag for the server, e.g. --flag=--instances=1.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG of the latencies.")] = None,
) -> None:
    """Print the ratios of the rates, and the quantiles of the calls."""
    settings = Settings(model_repository=repository, measure_cost_s=0.0)
    loaded = load_model(ModelSource.of(repository, model), settings, Openers()).versions[-1]
    lines = _lines(texts, limit)
    # Beside a job in the foreground calls would be refused, which ends a measurement.
    flags = ["--max-queue-s", "0", *(flag or [])]
    flags += ["--model-control-mode", "explicit", "--load-models", model]
    with tempfile.TemporaryDirectory() as name, serving(repository, flags) as server:
        folder = Path(name)
        job, ordered = (
            Jobs(folder, _written(folder / f"{name}.txt", each), model, server, in_flight)
            for name, each in (("texts", lines), ("ordered", sorted(lines, key=len)))
        )
        _show_rates(_rates(loaded, model, lines, {JOB: job, ORDERED: ordered}, rounds))
        found: dict[str, list[Turn]] = {way: [] for way in WAYS}
        for way, counts in turns(WAYS, rounds, warm_up=0):
            turn = _beside(way, job, server, model, lines, calls_per_s, seconds)
            if counts:
                found[way].append(turn)
    _show_calls(found, calls_per_s)
    if plot is not None:
        draw(found, calls_per_s, plot)


def _lines(texts: Path | None, limit: int) -> list[str]:
    """Lines of the file, repeated in a random order where it has fewer."""
    generator = random.Random(SEED)
    if texts is None:
        return [lengths.text(generator) for lengths in mixed(limit, generator)]
    known = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    return known[:limit] if len(known) >= limit else generator.choices(known, k=limit)


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

    def lines_per_s(self) -> float:
        """The rate that a job reports of itself, start and end included."""
        command = self.command(self.folder / "whole.npy")
        ended = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        rate = RATE.search(" ".join(ended.stderr.split()))
        assert rate is not None, ended.stderr
        return float(rate[2].replace(",", ""))

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


def _rates(
    loaded: LoadedVersion,
    model: str,
    lines: Sequence[str],
    jobs: Mapping[str, Jobs],
    rounds: int,
) -> dict[str, list[float]]:
    """Lines per second of the session alone and of each job, by rounds."""
    items, _ = rows_of(loaded, model, lines)
    bare = bare_way(loaded, items)
    ways = {"bare": lambda: len(lines) / bare()}
    return take_turns(ways | {name: job.lines_per_s for name, job in jobs.items()}, rounds)


def _show_rates(rates: dict[str, list[float]]) -> None:
    table = Table("way", "lines/s", "over bare")
    for way, found in rates.items():
        ratio = spread([ours / bare for ours, bare in zip(found, rates["bare"], strict=True)])
        table.add_row(way, f"{spread(found).median:,.0f}", str(ratio))
    Console().print(table)


def _beside(
    way: str,
    job: Jobs,
    server: Server,
    model: str,
    lines: Sequence[str],
    calls_per_s: float,
    seconds: float,
) -> Turn:
    def calls() -> list[float]:
        return asyncio.run(_call(server.address, model, lines, calls_per_s, seconds))

    if way == "calls alone":
        return Turn(calls())
    more = ["--foreground"] if way.endswith("foreground") else []
    with job.running(*more):
        _await_rows(server)
        before, began_s = _rows_answered(server), time.monotonic()
        if way == "job alone":
            latencies_s = []
            time.sleep(seconds)
        else:
            latencies_s = calls()
        num_lines = _rows_answered(server) - before - len(latencies_s)
        return Turn(latencies_s, num_lines / (time.monotonic() - began_s))


def _await_rows(server: Server) -> None:
    """Return once a job's lines are being answered."""
    until, end_s = _rows_answered(server) + SETTLED_LINES, time.monotonic() + STOP_S
    while _rows_answered(server) < until:
        assert time.monotonic() < end_s, "a job began"
        time.sleep(WATCH_S)


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


def _rows_answered(server: Server) -> float:
    """Rows that the server has answered so far."""
    samples = read_samples(server.metrics_url)
    return sum(sample.value for sample in samples if sample.name == ROWS_ANSWERED)


def _show_calls(found: dict[str, list[Turn]], calls_per_s: float) -> None:
    alone = [turn.lines_per_s for turn in found["job alone"]]
    calm_ms = _quantiles_ms(found["calls alone"])
    table = Table("way", "p50", "p99", "p99 over alone", "lines/s", "over the job alone")
    for way, each in found.items():
        p50, p99 = _quantiles_ms(each) if each[0].latencies_s else (0.0, 0.0)
        shares = spread([t.lines_per_s / a for t, a in zip(each, alone, strict=True)])
        table.add_row(
            way,
            f"{p50:.1f} ms" if p50 else "",
            f"{p99:.1f} ms" if p99 else "",
            f"{p99 / calm_ms[1]:.2f} {_by_round(each, found['calls alone'])}" if p99 else "",
            f"{spread([t.lines_per_s for t in each]).median:,.0f}" if each[0].lines_per_s else "",
            str(shares) if each[0].lines_per_s else "",
        )
    Console().print(table)
    Console().print(
        f"{calls_per_s:g} calls a second; p99 of all rounds together, in brackets of each"
    )


def _quantiles_ms(found: Sequence[Turn]) -> tuple[float, float]:
    """p50 and p99 of the calls of all rounds."""
    latencies_s = [latency_s for turn in found for latency_s in turn.latencies_s]
    p50, p99 = np.quantile(latencies_s, (0.5, 0.99)).tolist()
    return p50 * 1e3, p99 * 1e3


def _by_round(found: Sequence[Turn], calm: Sequence[Turn]) -> str:
    ratios: Spread = spread(
        [
            _quantiles_ms([ours])[1] / _quantiles_ms([theirs])[1]
            for ours, theirs in zip(found, calm, strict=True)
        ]
    )
    return f"({ratios.lowest:.2f} to {ratios.highest:.2f})"


def draw(found: dict[str, list[Turn]], calls_per_s: float, path: Path) -> None:
    """Latencies over the share of calls that took no longer, and the job's rates."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (latencies, rates) = plt.subplots(
        1, 2, figsize=(10, 3.8), dpi=100, width_ratios=(2.2, 1)
    )
    shares = np.linspace(0, 1, 400)
    for way, each in found.items():
        values_s = [latency_s for turn in each for latency_s in turn.latencies_s]
        if values_s:
            latencies.plot(np.quantile(values_s, shares) * 1e3, shares * 100, label=way)
    latencies.axhline(99, color="0.7", linewidth=0.8)
    latencies.set(xscale="log", xlabel="latency, ms", ylabel="calls that took no longer, %")
    latencies.set_title(f"calls of one text, {calls_per_s:g} per second", fontsize=10)
    latencies.legend(frameon=False)
    named = [way for way in WAYS if found[way][0].lines_per_s]
    medians = [spread([turn.lines_per_s for turn in found[way]]).median for way in named]
    rates.barh(named[::-1], medians[::-1], color="tab:gray")
    rates.set_xlabel("lines per second")
    rates.set_title("the job", fontsize=10)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


if __name__ == "__main__":
    typer.run(main)
