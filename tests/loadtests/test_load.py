"""Whole loads against servers: fakes behind real gRPC, and real processes that are restarted."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from typer import Typer
from typer.testing import CliRunner

from loadtests.load.generator import Share, run_load
from loadtests.load.main import main, write
from loadtests.load.report import Report, Run
from loadtests.load.scenario import (
    Scenario,
    Traffic,
    parse_scenario,
    read_scenario,
    scenario_names,
)
from loadtests.load.tally import Tally
from loadtests.load.workers import WorkerError, Workers
from loadtests.load.workloads import LEFT, OK, Stubs, open_channel
from tests.fakes.serving import Served, serving, write_models

FAKES = {"classify": "spam", "embed": "mini", "generate": "tale", "infer": "simple"}


@pytest_asyncio.fixture(loop_scope="function")
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    write_models(tmp_path)
    async with serving(tmp_path) as server:
        yield server


def for_fakes(scenario: Scenario, rate: float = 60.0) -> Scenario:
    """The same scenario, of half a second, for the models of `write_models`."""
    traffic = tuple(
        replace(
            kind,
            name=kind.title,
            model=FAKES[kind.kind],
            max_tokens=(2, 6),
            words=(1, 3),
            read_pause_ms=min(kind.read_pause_ms, 20.0),
        )
        for kind in scenario.traffic
    )
    load = replace(scenario.load, rate=rate, seconds=0.5, warm_up_s=0.1, max_send_lag_ms=10_000)
    return replace(scenario, traffic=traffic, load=load)


async def run(scenario: Scenario, served: Served) -> Tally:
    async with open_channel([f"127.0.0.1:{served.app.grpc_port}"]) as channel:
        return await run_load(scenario, Share(), Stubs(channel))


@pytest.mark.parametrize("name", scenario_names())
async def test_every_scenario_runs(name: str, served: Served) -> None:
    total = (await run(for_fakes(read_scenario(name)), served)).total
    assert total.num_sent > 0
    assert set(total.statuses) <= {OK, LEFT}


async def test_a_run_leaves_its_report(served: Served, tmp_path: Path) -> None:
    scenario = for_fakes(read_scenario("mixed_models"))
    tally = await run(scenario, served)
    runs = [Run("main", 60.0, tally), Run("curve", 60.0, tally)]
    report = Report(scenario, "here", runs=runs, is_checked=False)
    write(report, tmp_path / "report")
    written = json.loads((tmp_path / "report/report.json").read_text())
    assert written["runs"][0]["total"]["statuses"] == dict(tally.total.statuses)
    assert set(written["runs"][0]["traffic"]) == {"classify", "embed", "generate"}
    assert written["failures"] == []
    assert (tmp_path / "report/report.png").stat().st_size > 1_000


async def test_generated_tokens_are_timed_and_counted(served: Served) -> None:
    text = '[[traffic]]\nkind = "generate"\nmodel = "tale"'
    scenario = for_fakes(parse_scenario("x", text))
    total = (await run(scenario, served)).total
    assert total.first_token.count == total.statuses[OK] > 0
    assert total.inter_token.count > 0
    assert total.num_tokens >= 2 * total.statuses[OK]


async def test_those_who_leave_are_counted_apart(served: Served) -> None:
    traffic = Traffic("classify", "spam", words=(1, 2), leave_share=1.0, leave_after_ms=1.0)
    scenario = for_fakes(Scenario("x", "", (traffic,)))
    served.sessions["spam"].hold()
    tally = await run(scenario, served)
    assert set(tally.total.statuses) == {LEFT}
    assert tally.total.num_lost == 0


async def test_statuses_of_errors_are_counted(served: Served) -> None:
    scenario = for_fakes(read_scenario("short"))
    nobody = replace(scenario, traffic=(replace(scenario.traffic[0], model="nobody"),))
    tally = await run(nobody, served)
    assert set(tally.total.statuses) == {"NOT_FOUND"}
    assert tally.good_share == 0.0


def test_expectations_that_are_not_met_are_told() -> None:
    text = '[expect]\nleast_sent = 5\nleast_good_share = 0.5\n[[traffic]]\nmodel = "m"'
    scenario = parse_scenario("x", text)
    report = Report(scenario, "", runs=[Run("main", 1.0, Tally(scenario.load, scenario.slo))])
    assert [failure.partition(",")[2] for failure in report.failures] == [
        " expected at least 50.00%",
        " expected at least 5",
    ]


def test_a_share_of_a_capacity_that_changed_means_nothing() -> None:
    text = '[expect]\nleast_good_of_capacity = 0.9\n[[traffic]]\nmodel = "m"'
    scenario = parse_scenario("x", text)
    runs = [Run("main", 1.0, Tally(scenario.load, scenario.slo))]
    report = Report(scenario, "", capacities=[20.0, 36.0], runs=runs)
    changed, missed = report.failures
    assert "capacity was 20.0/s before and 36.0/s after" in changed
    assert "expected at least 32.4: 0.9 of 36.0" in missed


SUMS = """
[load]
rate = 40
seconds = 12
warm_up_s = 0
processes = 2
max_send_lag_ms = 10000

[server]
replicas = 2
rolling_restarts = 1
settle_s = 0.8
flags = ["--drain-delay-s=1"]

[expect]
most_lost = 0
least_sent = 400

[[traffic]]
kind = "infer"
model = "sums"
"""


def test_a_rolling_restart_of_two_real_replicas_loses_nothing(tmp_path: Path) -> None:
    """The command, with two processes that send: 0 of some 480 requests, retries off."""
    path = tmp_path / "rolling.toml"
    path.write_text(SUMS)
    app = Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [str(path), "--output", str(tmp_path / "reports")])
    assert result.exit_code == 0, result.output
    (folder,) = (tmp_path / "reports").iterdir()
    report = json.loads((folder / "report.json").read_text())
    assert [restart["replica"] for restart in report["restarts"]] == [0, 1]
    assert set(report["runs"][0]["total"]["statuses"]) == {"OK"}


def test_wrong_scenarios_end_the_command_with_their_mistake() -> None:
    app = Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ["nothing"])
    assert result.exit_code == 2
    assert "no scenario 'nothing'" in result.output


def test_what_fails_in_a_worker_is_told() -> None:
    scenario = parse_scenario("x", '[[traffic]]\nkind = "infer"\nmodel = "m"')
    with Workers(1) as workers, pytest.raises(WorkerError, match=r"UNAVAILABLE|failed to connect"):
        workers.run(scenario, ["127.0.0.1:1"])
