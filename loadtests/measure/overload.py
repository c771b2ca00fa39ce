"""Measure what becomes of more requests than a server can do, with and without deadlines.

    python -m loadtests.measure.overload
    python -m loadtests.measure.overload --kind generate --model gpt

A server of our own on loopback, clients in another process. The capacity comes first, from clients
that wait for their answers; then twice and three times as much in an open loop, for each deadline.
Refused are requests that were told so at once; of the others, those that were not answered by their
deadline are late.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.main import LoadTest
from loadtests.load.scenario import Load, Scenario, ServerPlan, Traffic
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
    """One server under loads, each with a capacity before and after it."""

    def __init__(self, test: LoadTest, scenario: Scenario) -> None:
        self._test = test
        self._scenario = scenario
        self._capacity = self._measure_capacity()

    def _measure_capacity(self) -> float:
        load = replace(self._scenario.load, arrivals="closed", seconds=CAPACITY_S)
        tally = self._test.send(replace(self._scenario, load=load), "capacity")
        return tally.num_answers_in_time / CAPACITY_S

    def row(self, factor: float, deadline_s: float | None) -> Iterator[str]:
        """Send a multiple of the capacity; the cells of its row."""
        (traffic,) = self._scenario.traffic
        traffic = replace(traffic, deadline_s=deadline_s or NO_DEADLINE_S)
        before = self._capacity
        load = replace(self._scenario.load, rate=factor * before)
        tally = self._test.send(replace(self._scenario, traffic=(traffic,), load=load), "load")
        self._capacity = self._measure_capacity()
        total = tally.total
        num_refused = sum(total.statuses[status] for status in REFUSED)
        num_admitted = total.statuses.total() - num_refused
        goodput = tally.num_answers_in_time / load.seconds
        yield f"{factor:g} x"
        yield f"{deadline_s:g} s" if deadline_s else "none"
        yield f"{before:.1f}, {self._capacity:.1f}"
        yield f"{load.rate:.1f}"
        yield f"{goodput:.1f}"
        yield f"{2 * goodput / (before + self._capacity):.0%}"
        yield f"{num_refused}"
        yield f"{1 - total.statuses[OK] / max(1, num_admitted):.2%}"
        yield f"{total.latency.percentile_s(50) * 1e3:.0f}"
        yield f"{total.latency.percentile_s(99) * 1e3:.0f}"
        yield f"{total.first_token.percentile_s(99) * 1e3:.0f}" if total.first_token.count else ""
        yield f"{tally.send_lag.percentile_s(99) * 1e3:.0f}"


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
    server = ServerPlan(flags=tuple(flags.split()))
    scenario = Scenario("overload", "", (traffic,), load, server=server)
    table = Table(title=f"{kind} {model}, {rows} texts of {words[0]} to {words[1]} words a request")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    with LoadTest(scenario, [], repository) as test:
        bench = Bench(test, scenario)
        for deadline_s in map(float, deadlines.split(",")):
            for factor in FACTORS:
                table.add_row(*bench.row(factor, deadline_s or None))
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
