"""Replicas whose model sleeps, and what a measurement of scaling them concludes."""

import asyncio
import time
from pathlib import Path

import pytest

from loadtests.fleet.autoscaling import (
    FASTER,
    SLO,
    Evaluation,
    Fleet,
    scrape,
    summary,
    worst_minute,
)
from loadtests.fleet.fleet_simulation import Course
from loadtests.fleet.hpa import CHART
from loadtests.fleet.sleeping import MAX_ROWS, RUN_S
from loadtests.load.graphs import write_sums
from loadtests.load.scenario import Load, Slo, Traffic
from loadtests.load.tally import Sample, Tally
from loadtests.load.workloads import OK, Infer, Reply

WINDOW_S = CHART.down.window_s / FASTER


async def test_a_sleeping_replica_is_bounded_by_its_sleep_and_tells_its_load(
    tmp_path: Path,
) -> None:
    """Four full batches take four runs' time at least, and the scraped sum is what waits."""
    write_sums(tmp_path, "sums")
    fleet = Fleet(tmp_path)
    try:
        await fleet.begin(1)
        workload = Infer(Traffic("infer", "sums"), 0)
        await workload.prepare(fleet.pick())
        started_s = time.monotonic()
        asking = [asyncio.create_task(workload.ask(fleet.pick())) for _ in range(4 * MAX_ROWS)]
        seen = 0.0
        while not all(task.done() for task in asking):
            seen = max(seen, await fleet.in_flight())
        took_s = time.monotonic() - started_s
        assert {task.result().status for task in asking} == {OK}
        assert took_s >= 4 * RUN_S
        assert MAX_ROWS < seen <= 4 * MAX_ROWS
        assert scrape(fleet.ready[0].server.metrics_url) == 0
    finally:
        await fleet.end()


def tally_of(latency_s: dict[int, float], seconds: int = 60) -> Tally:
    """One request a second, of 10 ms but where said."""
    tally = Tally(Load(seconds=seconds, warm_up_s=0), Slo(latency_ms=SLO.latency_ms))
    for second in range(seconds):
        ended_s = second + latency_s.get(second, 0.010)
        tally.record(Traffic(model="m"), Sample(second, second, ended_s, Reply(OK)))
    return tally


@pytest.mark.parametrize(
    ("ordered", "late", "holds"),
    [
        ([2, 2, 3, 3, 3], {}, True),
        ([2, 2, 3, 3, 4], {}, True),
        ([2, 2, 2, 2, 2], {}, False),  # never scaled
        ([2, 3, 2, 3, 3], {}, False),  # flapped
        ([2, 2, 3, 3, 3], {4: 1.0}, False),  # the SLO broke first, and a share of 1 in 60 is late
    ],
)
def test_the_claim_holds_if_scaling_came_first_and_did_not_flap(
    ordered: list[int], late: dict[int, float], holds: bool
) -> None:
    times = [number * 5.0 for number in range(len(ordered))]
    assert times[-1] < WINDOW_S
    measured = [
        Evaluation(at_s, 10.0, count, count) for at_s, count in zip(times, ordered, strict=True)
    ]
    found = summary(measured, tally_of(late))
    assert found["holds"] is holds
    assert found["seconds_beyond_slo"] == list(late)


def test_worst_minute_is_a_share_of_sixty_seconds() -> None:
    course = Course(due=[10] * 120, bad=[0.0] * 60 + [5.0] * 30 + [0.0] * 30)
    assert worst_minute(course) == pytest.approx(0.25)
