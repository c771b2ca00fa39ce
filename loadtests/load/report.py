"""`Report`: what a load test found, as a table and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from loadtests.load.histogram import Histogram
from loadtests.load.rolling import Restart
from loadtests.load.scenario import Scenario
from loadtests.load.tally import Answers, Tally
from loadtests.load.workloads import OK
from service.runtime.cpus import available_cpus

MOST_CHANGE = 1.25  # of capacity during a test, beyond which shares of it mean nothing
TOKEN_HEADINGS = ("first token p99, ms", "between tokens p99, ms")


@dataclass(frozen=True, slots=True)
class Run:
    """One load and what came of it. `rate` is the due rate, 0 of a closed loop."""

    name: str  # capacity, main or curve
    rate: float
    tally: Tally

    @property
    def answers_per_s(self) -> float:
        return self.tally.num_answers_in_time / self.tally.load.seconds

    @property
    def good_per_s(self) -> float:
        return self.tally.num_good_in_time / self.tally.load.seconds

    def to_dict(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "name": self.name,
            "load": asdict(tally.load),
            "answers_per_s": round(self.answers_per_s, 2),
            "good_per_s": round(self.good_per_s, 2),
            "good_share": round(tally.good_share, 5),
            "faults": tally.faults,
            "send_lag_ms": tally.send_lag.to_dict(),
            "total": figures(tally.total),
            "traffic": {title: figures(part) for title, part in tally.by_traffic.items()},
            "seconds": {second: figures(part) for second, part in sorted(tally.by_second.items())},
        }


def figures(answers: Answers) -> dict[str, Any]:
    """Counts, and durations in milliseconds."""
    found: dict[str, Any] = {
        "sent": answers.num_sent,
        "good": answers.num_good,
        "lost": answers.num_lost,
        "statuses": dict(answers.statuses),
        "latency_ms": answers.latency.to_dict(),
    }
    if answers.first_token.count:
        found["tokens"] = answers.num_tokens
        found["first_token_ms"] = answers.first_token.to_dict()
        found["inter_token_ms"] = answers.inter_token.to_dict()
    return found


@dataclass(slots=True)
class Report:
    """Everything of one load test, filled as it goes."""

    scenario: Scenario
    address: str
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    capacities: list[float] = field(default_factory=list)  # before the load, and after
    runs: list[Run] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    is_checked: bool = True  # or too brief to say more than whether it runs

    @property
    def main(self) -> Run:
        return next(run for run in self.runs if run.name == "main")

    @property
    def failures(self) -> list[str]:
        """The expectations that the run did not meet, and the reasons why it is invalid."""
        if not self.is_checked:
            return [] if self.main.tally.total.statuses[OK] else ["nothing was answered"]
        faults = [*self.main.tally.faults]
        if self.capacities and max(self.capacities) > MOST_CHANGE * min(self.capacities):
            before, after = self.capacities
            faults.append(
                f"capacity was {before:.1f}/s before and {after:.1f}/s after: the machine's speed "
                f"changed by more than {MOST_CHANGE:g} times"
            )
        return [*faults, *self._unmet()]

    def _unmet(self) -> Iterator[str]:
        expect, run, total = self.scenario.expect, self.main, self.main.tally.total
        plan = self.scenario.server
        capacity = max(self.capacities, default=0.0)
        least = expect.least_good_of_capacity * capacity
        if run.good_per_s < least:
            yield (
                f"{run.good_per_s:.1f} good answers/s, expected at least {least:.1f}: "
                f"{expect.least_good_of_capacity:g} of {capacity:.1f}"
            )
        if run.tally.good_share < expect.least_good_share:
            yield (
                f"{run.tally.good_share:.2%} of answers are good, "
                f"expected at least {expect.least_good_share:.2%}"
            )
        p99_ms = total.latency.percentile_s(99) * 1e3
        if 0 <= expect.most_p99_ms < p99_ms:
            yield f"p99 of answers is {p99_ms:.0f} ms, expected at most {expect.most_p99_ms:g}"
        if 0 <= expect.most_lost < total.num_lost:
            yield f"{total.num_lost} requests were lost, expected at most {expect.most_lost}"
        if total.num_sent < expect.least_sent:
            yield f"{total.num_sent} requests were sent, expected at least {expect.least_sent}"
        planned = plan.rolling_restarts * plan.replicas
        if len(self.restarts) < planned:
            yield f"{len(self.restarts)} of {planned} restarts were done before the load was over"

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenario": asdict(self.scenario),
            "address": self.address,
            "started": self.started,
            "processors": available_cpus(),
            "capacities_per_s": self.capacities,
            "restarts": [asdict(restart) for restart in self.restarts],
            "failures": self.failures,
            "runs": [run.to_dict() for run in self.runs],
        }

    def show(self, console: Console) -> None:
        console.print(self._table())
        if self.capacities:
            found = ", then ".join(f"{capacity:.1f}" for capacity in self.capacities)
            console.print(f"capacity, closed loop: {found} answers/s")
        if self.restarts:
            console.print(f"{len(self.restarts)} replicas were restarted meanwhile")
        for failure in self.failures:
            console.print(f"[red]{failure}[/red]")

    def _table(self) -> Table:
        has_tokens = any(run.tally.total.first_token.count for run in self.runs)
        table = Table(title=f"{self.scenario.name}: {self.scenario.description}")
        table.add_column("run")
        durations = ("p50, ms", "p99, ms", *(TOKEN_HEADINGS if has_tokens else ()))
        for heading in ("due/s", "answers/s", "good/s", "good", *durations):
            table.add_column(heading, justify="right")
        table.add_column("ended as")
        for run in self.runs:
            tally = run.tally
            rates = (f"{run.rate:.1f}" if run.rate else "closed", f"{run.answers_per_s:.1f}")
            goodness = (f"{run.good_per_s:.1f}", f"{tally.good_share:.1%}")
            table.add_row(run.name, *rates, *goodness, *_cells(tally.total, has_tokens))
            if len(tally.by_traffic) > 1:
                for title, answers in sorted(tally.by_traffic.items()):
                    table.add_row(f"  {title}", *[""] * 4, *_cells(answers, has_tokens))
        return table


def _cells(answers: Answers, has_tokens: bool) -> Iterator[str]:
    yield _milliseconds(answers.latency, 50)
    yield _milliseconds(answers.latency, 99)
    if has_tokens:
        yield _milliseconds(answers.first_token, 99)
        yield _milliseconds(answers.inter_token, 99)
    yield ", ".join(f"{name} {count}" for name, count in answers.statuses.most_common())


def _milliseconds(histogram: Histogram, percent: float) -> str:
    return f"{histogram.percentile_s(percent) * 1e3:.1f}" if histogram.count else ""
