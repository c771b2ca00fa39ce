"""A replica whose model sleeps, for loads that need more capacity than the machine has."""

import asyncio
import time
from pathlib import Path

from loadtests.load.graphs import write_sums
from loadtests.load.scenario import Traffic
from loadtests.load.server import SLEEPING, serving
from loadtests.load.sleeping import MAX_ROWS, RUN_S
from loadtests.load.workloads import OK, Infer, Stubs, open_channel
from loadtests.measure.batching import read_samples

IN_FLIGHT = ("attendant_requests_waiting", "attendant_requests_running")


def load_of(metrics_url: str) -> float:
    return sum(each.value for each in read_samples(metrics_url) if each.name in IN_FLIGHT)


async def test_a_sleeping_replica_is_bounded_by_its_sleep_and_tells_its_load(
    tmp_path: Path,
) -> None:
    """Four full batches take four runs' time at least, and the scraped sum is what waits."""
    write_sums(tmp_path, "sums")
    with serving(tmp_path, command=SLEEPING) as server:
        channel = open_channel([server.address])
        workload, stubs = Infer(Traffic("infer", "sums"), 0), Stubs(channel)
        await workload.prepare(stubs)
        started_s = time.monotonic()
        asking = [asyncio.create_task(workload.ask(stubs)) for _ in range(4 * MAX_ROWS)]
        seen = 0.0
        while not all(task.done() for task in asking):
            seen = max(seen, await asyncio.to_thread(load_of, server.metrics_url))
        took_s = time.monotonic() - started_s
        assert {task.result().status for task in asking} == {OK}
        assert took_s >= 4 * RUN_S
        assert MAX_ROWS < seen <= 4 * MAX_ROWS
        assert load_of(server.metrics_url) == 0
        await channel.close()
