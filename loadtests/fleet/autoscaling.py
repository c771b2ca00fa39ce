"""Scaling on requests in flight: soon enough, and without flapping.

    python -m loadtests.fleet.autoscaling measure step
    python -m loadtests.fleet.autoscaling measure diurnal
    python -m loadtests.fleet.autoscaling simulate

`measure` runs replicas of the real server on loopback (`loadtests.fleet.sleeping`: their capacity
is bounded by sleeping) behind a client that balances round robin. It scrapes `/metrics` of each,
gives the sum of `attendant_requests_waiting` and `attendant_requests_running` to the autoscaler's
rules with the chart's behaviour, ten times faster, and starts and stops processes as they say; a
new one gets requests `START_S` after it was ordered, or when it is ready if that takes longer.
"""

import asyncio
import json
import re
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.request import urlopen

import grpc
import matplotlib as mpl
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

mpl.use("Agg")
import matplotlib.pyplot as plt

from loadtests.fleet.fleet_simulation import Course, Service, simulate
from loadtests.fleet.hpa import CHART, HorizontalAutoscaler, num_flaps
from loadtests.fleet.sleeping import CAPACITY
from loadtests.load.arrivals import Rate, diurnal, poisson, step
from loadtests.load.generator import Generator
from loadtests.load.graphs import write_sums
from loadtests.load.scenario import Load, Slo, Traffic
from loadtests.load.server import SLEEPING, Server, start_server
from loadtests.load.tally import Tally
from loadtests.load.workloads import Infer, Stubs, open_channel

FASTER = 10.0  # than the chart's seconds
START_S = 45.0 / FASTER
SLOTS = 12  # requests in flight with which a replica still meets the SLO with ease
TARGET = 0.75 * SLOTS
SLO = Slo(latency_ms=250)
GAUGES = re.compile(r"^attendant_requests_(?:waiting|running)\{[^}]*\} (\S+)$", re.MULTILINE)
# Requests per second. The step stays within what the first two replicas can do: one that does not
# breaks any SLO until replicas have started, whatever signal is scaled on.
LOADS: dict[str, tuple[Rate, float, float]] = {  # rate, its peak, seconds
    "step": (step(150.0, 1.7 * CAPACITY, 15.0), 1.7 * CAPACITY, 60.0),
    "diurnal": (diurnal(150.0, 2.5 * CAPACITY, 180.0), 2.5 * CAPACITY, 180.0),
}
app = typer.Typer(help=__doc__, no_args_is_help=True)
console = Console()


@dataclass(frozen=True, slots=True)
class Replica:
    """A process, and the connection to it."""

    server: Server
    channel: grpc.aio.Channel
    stubs: Stubs


class Fleet:
    """Replicas that come and go. `ready` get requests, each in turn."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self.ready: list[Replica] = []
        self.num_ordered = 0
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def pick(self) -> Stubs:
        self._turn += 1
        return self.ready[self._turn % len(self.ready)].stubs

    async def begin(self, count: int) -> None:
        self.num_ordered = count
        await asyncio.gather(*(self._start(0.0) for _ in range(count)))

    def order(self, count: int) -> None:
        """Start or stop as many as are missing or too many; returns at once."""
        for _ in range(count - self.num_ordered):
            self._do(self._start(START_S))
        for _ in range(self.num_ordered - count):
            self._do(self._stop_one())
        self.num_ordered = count

    async def in_flight(self) -> float:
        """Requests waiting and running in all replicas, from their pages of metrics."""
        urls = [replica.server.metrics_url for replica in self.ready]
        return sum(await asyncio.gather(*(asyncio.to_thread(scrape, url) for url in urls)))

    async def end(self) -> None:
        """Stop all, and then raise what a start or a stop under way has raised."""
        done = await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._stop_one() for _ in list(self.ready)))
        for error in done:
            if error is not None:
                raise error

    def _do(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)

    async def _start(self, delay_s: float) -> None:
        due_s = time.monotonic() + delay_s
        server = await asyncio.to_thread(start_server, self._repository, (), 0, SLEEPING)
        channel = open_channel([server.address])
        await channel.channel_ready()
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        self.ready.append(Replica(server, channel, Stubs(channel)))

    async def _stop_one(self) -> None:
        """The newest gets no more requests, and ends when it has answered what it has."""
        replica = self.ready.pop()
        await asyncio.to_thread(replica.server.stop)
        await replica.channel.close()


def scrape(url: str) -> float:
    with urlopen(url, timeout=5) as page:  # noqa: S310 - http, our own
        return sum(float(value) for value in GAUGES.findall(page.read().decode()))


class Evaluation(NamedTuple):
    """The fleet at one evaluation of the autoscaler."""

    at_s: float
    in_flight: float
    ordered: int
    ready: int


@app.command()
def measure(
    load: Annotated[str, typer.Argument(help="step or diurnal.")] = "step",
    output: Annotated[Path, typer.Option(help="Folder for JSON and picture.")] = Path(
        "build/loadtests"
    ),
) -> None:
    """Scale real servers; fails where the SLO broke first, or the number of replicas flapped."""
    if load not in LOADS:
        raise typer.BadParameter(f"'{load}' is none of {', '.join(LOADS)}")
    rate, peak, seconds = LOADS[load]
    with tempfile.TemporaryDirectory() as folder:
        write_sums(Path(folder), "sums")
        measured, tally = asyncio.run(_measure(Path(folder), rate, peak, seconds))
    found = summary(measured, tally)
    output.mkdir(parents=True, exist_ok=True)
    (output / f"autoscaling-{load}.json").write_text(json.dumps(found, indent=1))
    draw(load, rate, measured, tally, output / f"autoscaling-{load}.png")
    console.print_json(json.dumps({key: found[key] for key in found if key != "course"}))
    raise typer.Exit(0 if found["holds"] else 1)


async def _measure(
    repository: Path, rate: Rate, peak: float, seconds: float
) -> tuple[list[Evaluation], Tally]:
    behavior = CHART.faster(FASTER)
    fleet = Fleet(repository)
    await fleet.begin(behavior.least)
    try:
        workload = Infer(Traffic("infer", "sums", deadline_s=5.0), 0)
        await workload.prepare(fleet.pick())
        load = Load(rate=peak, seconds=seconds, warm_up_s=0.0, max_send_lag_ms=50.0)
        generator = Generator(load, Tally(load, SLO), [workload], fleet.pick)
        measured: list[Evaluation] = []
        scaler = HorizontalAutoscaler(behavior, TARGET)
        scaling = asyncio.create_task(_scale(fleet, scaler, behavior.sync_s, measured))
        await generator.open_loop(poisson(rate, peak, seconds, generator.random))
        scaling.cancel()
        with suppress(asyncio.CancelledError):
            await scaling
    finally:
        await fleet.end()
    return measured, generator.tally


async def _scale(
    fleet: Fleet, scaler: HorizontalAutoscaler, sync_s: float, measured: list[Evaluation]
) -> None:
    start_s = time.monotonic()
    while True:
        await asyncio.sleep(sync_s)
        total = await fleet.in_flight()
        now_s = time.monotonic() - start_s
        fleet.order(scaler.evaluate(now_s, fleet.num_ordered, total))
        measured.append(Evaluation(now_s, total, fleet.num_ordered, len(fleet.ready)))


def summary(measured: Sequence[Evaluation], tally: Tally) -> dict[str, Any]:
    """The claim in figures: scaled up first, kept the SLO, did not flap."""
    at_s, _, ordered, _ = zip(*measured, strict=True)
    up_s = next((each.at_s for each in measured if each.ordered > ordered[0]), None)
    broken_s = [
        second
        for second, answers in sorted(tally.by_second.items())
        if answers.num_good < SLO.share * answers.statuses.total()
    ]
    total = tally.total
    flaps = num_flaps(at_s, ordered, CHART.down.window_s / FASTER)
    is_first = up_s is not None and (not broken_s or up_s < broken_s[0])
    return {
        "holds": is_first and tally.good_share >= SLO.share and not (flaps or tally.faults),
        "requests": total.num_sent,
        "statuses": dict(total.statuses),
        "good_share": round(tally.good_share, 5),
        "latency_ms": total.latency.to_dict(),
        "first_scaled_up_at_s": up_s and round(up_s, 1),
        "seconds_beyond_slo": broken_s,
        "least_and_most_replicas": [min(ordered), max(ordered)],
        "flaps": flaps,
        "send_lag_ms": tally.send_lag.to_dict(),
        "faults": tally.faults,
        "course": [each._asdict() | {"at_s": round(each.at_s, 2)} for each in measured],
    }


def draw(name: str, rate: Rate, measured: Sequence[Evaluation], tally: Tally, path: Path) -> None:
    """Load and what replicas can do; the signal and its target; latency and its bound."""
    at_s, in_flight, ordered, ready = (np.array(each) for each in zip(*measured, strict=True))
    figure, (above, middle, below) = plt.subplots(3, 1, figsize=(6.5, 6.5), dpi=80, sharex=True)
    seconds = sorted(tally.by_second)
    above.plot(seconds, [rate(second) for second in seconds], label="due per second")
    above.step(at_s, ready * CAPACITY, where="post", label="capacity of ready replicas")
    above.step(at_s, ordered * CAPACITY, where="post", linestyle=":", label="of ordered ones")
    middle.plot(at_s, in_flight, label="in flight, scraped")
    middle.step(at_s, ready * TARGET, where="post", linestyle="--", label="target x ready")
    for percent in (50, 99):
        values = [tally.by_second[s].latency.percentile_s(percent) * 1e3 for s in seconds]
        below.plot(seconds, values, label=f"latency p{percent}, ms")
    below.axhline(SLO.latency_ms, color="0.5", linestyle="--", label="SLO")
    below.set_xlabel("seconds, ten times faster than the chart's")
    for panel in (above, middle, below):
        panel.legend(fontsize="small", loc="lower right")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    figure.suptitle(f"autoscaling: {name}")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


SIMULATED = Service()
SIMULATED_TARGET = (
    8.0  # in flight at some 80 % of a capacity; nearer to it, small steps are too much
)
SIMULATED_LOADS: dict[str, tuple[Rate, float]] = {
    "step by a quarter, 2,400 to 3,000/s": (step(2_400, 3_000, 1_200.0), 3_600.0),
    "step to twice, 2,400 to 4,800/s": (step(2_400, 4_800, 1_200.0), 3_600.0),
    "day in four hours, 1,000 to 9,000/s": (diurnal(1_000, 9_000, 14_400.0), 14_400.0),
}


@app.command(name="simulate")
def simulate_command() -> None:
    """The same rules for up to 80 replicas, at the chart's own speed."""
    behavior = replace(CHART, most=80)
    table = Table("load", "replicas", "late or refused", "in the worst minute", "flaps")
    for name, (rate, duration_s) in SIMULATED_LOADS.items():
        course = simulate(SIMULATED, behavior, SIMULATED_TARGET, rate, duration_s)
        table.add_row(
            name,
            f"{min(course.replicas)} to {max(course.replicas)}",
            f"{course.bad_share:.3%}",
            f"{worst_minute(course):.2%}",
            str(course.num_flaps(CHART.down.window_s)),
        )
    console.print(table)


def worst_minute(course: Course) -> float:
    """The share of requests that were late or refused in the worst sixty seconds."""
    bad, due = (np.convolve(each, np.ones(60), "valid") for each in (course.bad, course.due))
    return float((bad / np.maximum(due, 1.0)).max())


if __name__ == "__main__":
    app()
