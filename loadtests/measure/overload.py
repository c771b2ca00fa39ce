"""Measure what becomes of more requests than a server can do, with and without deadlines.

    python -m loadtests.measure.overload
    python -m loadtests.measure.overload --kind generate --model gpt

A server of our own on loopback, clients in another process. The capacity comes first, from clients
that wait for their answers; then twice and three times as much in an open loop, for each deadline.
Refused are requests that were told so at once; of the others, those that were not answered by their
deadline are late.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.main import gather_models
from loadtests.load.scenario import Load, Scenario, Traffic
from loadtests.load.server import serving
from loadtests.load.tally import Tally
from loadtests.load.workers import Workers
from loadtests.load.workloads import OK

FACTORS = (2.0, 3.0)
NO_DEADLINE_S = 60.0  # longer than anything waits
REFUSED = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
CAPACITY_S = 5.0
WARM_UP_S = 2.0
HEADINGS = (
    *("load", "deadline", "capacity before, after, /s", "due/s", "answers/s", "of capacity"),
    *("refused", "late", "p50, ms", "p99, ms", "first token p99, ms", "send lag p99, ms"),
)
console = Console(width=160)


class Bench:
    """One server and the process that sends; each load has a capacity before and after it."""

    def __init__(self, workers: Workers, address: str, scenario: Scenario) -> None:
        self._workers = workers
        self._address = address
        self._scenario = scenario
        self._capacity = self._measure_capacity()

    def measure(self, factor: float, deadline_s: float | None) -> "Outcome":
        (traffic,) = self._scenario.traffic
        traffic = replace(traffic, deadline_s=deadline_s or NO_DEADLINE_S)
        before = self._capacity
        load = replace(self._scenario.load, rate=factor * before)
        tally = self._send(replace(self._scenario, traffic=(traffic,), load=load))
        self._capacity = self._measure_capacity()
        return Outcome(factor, deadline_s, tally, before, self._capacity)

    def _measure_capacity(self) -> float:
        load = replace(self._scenario.load, arrivals="closed", seconds=CAPACITY_S)
        return self._send(replace(self._scenario, load=load)).num_answers_in_time / CAPACITY_S

    def _send(self, scenario: Scenario) -> Tally:
        return self._workers.run(scenario, [self._address])


@dataclass(frozen=True, slots=True)
class Outcome:
    """One load beside the capacities measured before and after it."""

    factor: float
    deadline_s: float | None
    tally: Tally
    before: float
    after: float

    def cells(self) -> Iterator[str]:
        total = self.tally.total
        num_refused = sum(total.statuses[status] for status in REFUSED)
        num_admitted = total.statuses.total() - num_refused
        goodput = self.tally.num_answers_in_time / self.tally.load.seconds
        yield f"{self.factor:g} x"
        yield f"{self.deadline_s:g} s" if self.deadline_s else "none"
        yield f"{self.before:.1f}, {self.after:.1f}"
        yield f"{self.tally.load.rate:.1f}"
        yield f"{goodput:.1f}"
        yield f"{2 * goodput / (self.before + self.after):.0%}"
        yield f"{num_refused}"
        yield f"{1 - total.statuses[OK] / max(1, num_admitted):.2%}"
        yield f"{total.latency.percentile_s(50) * 1e3:.0f}"
        yield f"{total.latency.percentile_s(99) * 1e3:.0f}"
        yield f"{total.first_token.percentile_s(99) * 1e3:.0f}" if total.first_token.count else ""
        yield f"{self.tally.send_lag.percentile_s(99) * 1e3:.0f}"


def main(
    model: Annotated[str, typer.Option(help="Model that is asked.")] = "minilm",
    kind: Annotated[str, typer.Option(help="classify, embed or generate.")] = "embed",
    rows: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = 8,
    words: Annotated[tuple[int, int], typer.Option(help="Least and most of a text.")] = (8, 24),
    max_tokens: Annotated[tuple[int, int], typer.Option(help="Of an output.")] = (16, 64),
    deadlines: Annotated[str, typer.Option(help="Seconds, with commas; 0: none.")] = "0.3,1,0",
    concurrency: Annotated[int, typer.Option(min=1, help="Clients, for the capacity.")] = 16,
    seconds: Annotated[float, typer.Option(min=1, help="Of each load.")] = 12.0,
    flags: Annotated[str, typer.Option(help="Further flags of the server.")] = "",
    repository: Annotated[Path, typer.Option(help="Models.")] = Path("model_repository"),
) -> None:
    """Print the table."""
    traffic = Traffic(
        kind=kind,
        model=model,
        rows=rows,
        words=words,
        max_tokens=max_tokens,
        deadline_s=NO_DEADLINE_S,
    )
    load = Load(concurrency=concurrency, seconds=seconds, warm_up_s=WARM_UP_S, max_send_lag_ms=1e4)
    scenario = Scenario("overload", "", (traffic,), load)
    table = Table(title=f"{kind} {model}, {rows} texts of {words[0]} to {words[1]} words a request")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        gather_models(scenario, repository, folder)
        workers = stack.enter_context(Workers(1))
        server = stack.enter_context(serving(folder, flags.split()))
        bench = Bench(workers, server.address, scenario)
        for deadline_s in map(float, deadlines.split(",")):
            for factor in FACTORS:
                outcome = bench.measure(factor, deadline_s or None)
                table.add_row(*outcome.cells())
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
