"""Run a scenario against a server, and leave a report.

    python -m loadtests.load ragged
    python -m loadtests.load overload --address serving.example:8001
    python -m loadtests.load short --curve

Without an address, servers of our own are started on loopback, over the models that the scenario
asks. The command fails where the run is not valid, or does not show what the scenario expects.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console
from rich.progress import Progress

from loadtests.load.report import Report, Run
from loadtests.load.rolling import Replicas
from loadtests.load.scenario import Scenario, ScenarioError, check_together, read_scenario
from loadtests.load.tally import Tally
from loadtests.load.workers import START_DELAY_S, WorkerError, Workers

SUMS = "sums"  # a model that computes next to nothing; written here, not part of any repository
CURVE = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)  # rates, over the capacity
BRIEF_S = 1.0
console = Console()
errors = Console(stderr=True)


def main(
    scenario: Annotated[str, typer.Argument(help="One of ours, or the path of a TOML file.")],
    address: Annotated[
        list[str] | None,
        typer.Option(help="HOST:PORT of a server; several are balanced over. None: start some."),
    ] = None,
    repository: Annotated[Path, typer.Option(help="Models for a server of our own.")] = Path(
        "model_repository"
    ),
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Measured time.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, help="Requests per second.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Processes that send.")] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Try eight rates as well.")] = False,
    brief: Annotated[
        bool, typer.Option("--brief", help="About a second each, and nothing is expected.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder of reports.")] = Path("build/loadtests"),
) -> None:
    """Run a scenario, print its table, write its report."""
    try:
        plan = _with_options(read_scenario(scenario), seconds, rate, processes, brief)
    except ScenarioError as error:
        errors.print(str(error), style="red")
        raise typer.Exit(2) from error
    if address and plan.server.rolling_restarts:
        errors.print(f"{plan.name} restarts servers of its own: leave --address out", style="red")
        raise typer.Exit(2)
    try:
        with LoadTest(plan, address or [], repository) as test:
            report = test.run(with_curve=curve)
    except (WorkerError, RuntimeError) as error:
        errors.print(str(error), style="red")
        raise typer.Exit(2) from error
    report.is_checked = not brief
    folder = output / f"{plan.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    write(report, folder)
    report.show(console)
    console.print(f"report: {folder}")
    raise typer.Exit(1 if report.failures else 0)


def write(report: Report, folder: Path) -> None:
    """Write `report.json` and `report.png`."""
    from loadtests.load.pictures import draw_report  # slow to import, and workers import this too

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report.to_dict(), indent=1))
    draw_report(report, folder / "report.png")


def _with_options(
    scenario: Scenario,
    seconds: float | None,
    rate: float | None,
    processes: int | None,
    brief: bool,
) -> Scenario:
    load = scenario.load
    if brief:
        warm_up_s = min(load.warm_up_s, BRIEF_S / 2)
        load = replace(load, seconds=BRIEF_S, capacity_s=BRIEF_S, warm_up_s=warm_up_s)
        server = replace(scenario.server, rolling_restarts=min(1, scenario.server.rolling_restarts))
        scenario = replace(scenario, server=server)
    if seconds is not None:
        load = replace(load, seconds=seconds)
    if rate is not None:
        load = replace(load, rate=rate, of_capacity=0.0)
    if processes is not None:
        load = replace(load, processes=processes)
    scenario = replace(scenario, load=load)
    check_together(scenario)
    return scenario


class LoadTest:
    """One scenario with its workers, and with servers where no address was given."""

    def __init__(self, scenario: Scenario, addresses: Sequence[str], repository: Path) -> None:
        self._scenario = scenario
        self._given = list(addresses)
        self._repository = repository
        self._stack = ExitStack()
        self._replicas: Replicas | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._workers = stack.enter_context(Workers(self._scenario.load.processes))
            if not self._given:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                _gather_models(self._scenario, self._repository, folder)
                self._replicas = stack.enter_context(Replicas(folder, self._scenario.server))
            self._progress = stack.enter_context(Progress(console=errors, refresh_per_second=2))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def _addresses(self) -> Sequence[str]:
        return self._replicas.addresses if self._replicas else self._given

    def run(self, *, with_curve: bool = False) -> Report:
        """Capacity where it is needed, the load itself, then the curve."""
        report = Report(self._scenario, ", ".join(self._addresses))
        load = self._scenario.load
        rate = load.rate
        capacity = 0.0
        if load.of_capacity or with_curve:
            capacity = self._measure_capacity(report)
        if load.of_capacity:
            rate = load.of_capacity * capacity
        self._measure(report, "main", rate)
        if self._scenario.expect.least_good_of_capacity > 0:
            self._measure_capacity(report)
        for share in CURVE if with_curve else ():
            self._measure(report, "curve", share * capacity)
        return report

    def _measure_capacity(self, report: Report) -> float:
        """Answers per second to clients that wait for each; none of them leaves or is slow."""
        load = self._scenario.load
        closed = replace(load, arrivals="closed", seconds=load.capacity_s)
        traffic = tuple(
            replace(kind, leave_share=0.0, read_pause_ms=0.0) for kind in self._scenario.traffic
        )
        tally = self.send(replace(self._scenario, load=closed, traffic=traffic), "capacity")
        run = Run("capacity", 0.0, tally)
        if not run.answers_per_s:
            statuses = dict(tally.total.statuses)
            raise RuntimeError(
                f"no capacity could be measured, since nothing was answered: {statuses}"
            )
        report.runs.append(run)
        report.capacities.append(run.answers_per_s)
        return run.answers_per_s

    def _measure(self, report: Report, name: str, rate: float) -> None:
        load = replace(self._scenario.load, rate=rate)
        if name != "main":  # of other rates, arrivals as they would be without bursts
            load = replace(load, arrivals="poisson", burst_factor=1.0)
        scenario = replace(self._scenario, load=load)
        if name == "main" and self._replicas and self._scenario.server.rolling_restarts:
            tally = self._send_while_rolling(scenario, report)
        else:
            tally = self.send(scenario, name)
        is_open = load.arrivals != "closed"
        report.runs.append(Run(name, rate if is_open else 0.0, tally))

    def _send_while_rolling(self, scenario: Scenario, report: Report) -> Tally:
        assert self._replicas is not None
        is_over = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            start_s = time.monotonic() + START_DELAY_S
            rolling = pool.submit(self._replicas.roll, start_s, is_over)
            try:
                tally = self.send(scenario, "main, restarting replicas")
            finally:
                is_over.set()
            report.restarts = rolling.result()
        return tally

    def send(self, scenario: Scenario, name: str) -> Tally:
        """One load; `name` stands beside its progress bar."""
        task = self._progress.add_task(name, total=scenario.load.end_s)

        def on_progress(passed_s: float) -> None:
            self._progress.update(task, completed=min(passed_s, scenario.load.end_s))

        return self._workers.run(scenario, self._addresses, on_progress)


def _gather_models(scenario: Scenario, repository: Path, folder: Path) -> None:
    """A repository of the models that a scenario asks, and no others."""
    for model in scenario.models:
        if (repository / model).is_dir():
            shutil.copytree(repository / model, folder / model, copy_function=_link_or_copy)
        elif model == SUMS:
            from loadtests.load.graphs import write_sums  # needs onnx, as nothing else here does

            write_sums(folder, SUMS)
        else:
            raise RuntimeError(f"model '{model}' is not in {repository}: see `make models`")


def _link_or_copy(source: str, target: str) -> None:
    """Hard links, since a server follows no others out of its repository."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
