"""A job on a local Ray cluster of two node processes, one of which is killed while it computes.

Ray listens on the machine's address, whichever one it is given for loopback, and runs what anyone
there sends. So this runs only where loopback is all there is, as in a network of its own:

    unshare -n sh -c "ip link set lo up; python -m pytest tests/commands/ask/bulk/test_ray_job.py"
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands.ask.bulk.in_process import InProcess
from commands.ask.bulk.job import Job, run_job
from commands.ask.bulk.sources import Source
from commands.ask.bulk.work import served_model, work_of
from service.calls.texts import Classify
from tests.commands.ask.bulk.test_job import Interrupting, files_of

ray: Any = pytest.importorskip("ray")
pytest.importorskip("pyarrow")
NODE = {"num_cpus": 1, "object_store_memory": 10**8}
NUM_LINES = 3_000
LIMIT_S = 1_200


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    if ray.util.get_node_ip_address() != "127.0.0.1":
        pytest.skip("Ray would listen on the machine's address: run this in a network of its own")
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def job_of(exported: Path, source: Path, output: Path) -> Job:
    call = Classify(model="spam", all_scores=True, truncate=True, background=True)
    with InProcess(exported, "spam", num_threads=1) as local:
        model = served_model(local, "spam", "")
    named = {"model": model.name, "version": model.version, "precision": model.precision}
    return Job(Source(source), output, work_of(call, model), named, 64, 2, 60.0)


@pytest.mark.timeout(LIMIT_S)
def test_a_node_that_is_killed_loses_nothing_and_the_file_is_that_of_one_machine(
    exported: Path, tmp_path: Path, cluster: Any
) -> None:
    """3,000 lines in 47 windows; the second node ends when five of them are there."""
    from commands.ask.bulk.ray_job import run_on_ray

    source = tmp_path / "texts.txt"
    lines = [f"message {number} " + "win a prize " * (number % 9) for number in range(NUM_LINES)]
    lines[100] = ""
    source.write_text("\n".join(lines) + "\n")
    single, spread = tmp_path / "single", tmp_path / "spread"
    single.mkdir()
    spread.mkdir()
    job = job_of(exported, source, single / "out.parquet")
    with InProcess(exported, "spam", num_threads=2) as local:
        run_job(job, job.work.ask(local), restarts=False)
    expected = files_of(single)

    other = cluster.add_node(**NODE)
    job = job_of(exported, source, spread / "out.parquet")
    killed = threading.Event()

    def kill() -> None:
        until_s = time.monotonic() + LIMIT_S
        while len(list((spread / "out.parquet.parts").glob("*.parquet"))) < 5:
            assert time.monotonic() < until_s, "no part was written"
            time.sleep(0.02)
        cluster.remove_node(other, allow_graceful=False)
        killed.set()

    threading.Thread(target=kill, daemon=True).start()
    before, reached = run_on_ray(job, cluster.address, exported, 0, 1, restarts=False)
    assert killed.is_set()
    assert (before.num_lines, reached.num_lines, reached.num_empty) == (0, NUM_LINES, 1)
    assert files_of(spread) == expected


@pytest.mark.timeout(LIMIT_S)
def test_a_cluster_goes_on_with_the_parts_of_one_machine(
    exported: Path, tmp_path: Path, cluster: Any
) -> None:
    from commands.ask.bulk.ray_job import run_on_ray

    source = tmp_path / "texts.txt"
    source.write_text("".join(f"message {number}\n" for number in range(640)))
    job = job_of(exported, source, tmp_path / "out.parquet")
    with InProcess(exported, "spam", num_threads=1) as local:
        ask, interrupting = job.work.ask(local), Interrupting(4)

        def some(texts: Any) -> Any:
            interrupting.num_left -= 1
            if interrupting.num_left < 0:
                raise KeyboardInterrupt
            return ask(texts)

        with pytest.raises(KeyboardInterrupt):
            run_job(job, some, restarts=False)
    before, reached = run_on_ray(job, cluster.address, exported, 0, 1, restarts=False)
    assert 0 < before.num_lines < reached.num_lines == 640
