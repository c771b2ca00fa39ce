"""A job on a Ray cluster: windows of a file, computed by actors that hold a session each.

The input, the output's folder and the model repository are at the same paths on every node. A
window is done when its part exists, and is written whole or not at all, so that Ray may repeat what
was lost with a node. Requests are those of one machine, so the parts are the same to the byte.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commands.ask.bulk.in_process import InProcess
from commands.ask.bulk.job import Job, answered_windows, begin
from commands.ask.bulk.outputs import Parts, errors_path
from commands.ask.bulk.parquet_files import num_rows_of
from commands.ask.bulk.state import Reached, StateFile
from commands.ask.bulk.windows import GivenLines, Windows, next_lines
from commands.ask.lines import EMPTY
from commands.ask.progress import progress
from service.errors import AttendantError, SettingError

try:
    import ray
    import ray.data
except ImportError as error:
    raise SettingError(
        "--engine ray needs Ray Data, which is not installed: pip install 'attendant[ray]'"
    ) from error

MAX_BLOCKS = 10_000  # of the table of windows: Ray gives an actor a block at a time


def run_on_ray(
    job: Job, address: str, repository: Path, num_actors: int, num_cpus: int, *, restarts: bool
) -> tuple[Reached, Reached]:
    """Do what is left of a job; returns what earlier runs reached, and the whole.

    Raises `SettingError` as `run_job` does, and where the cluster is not there or too small.
    """
    identity, state = job.identity(), StateFile(job.output)
    is_known = not restarts and state.read(identity) is not None
    begin(job.output, state, identity, restarts=restarts)
    parts = Parts(job.output, job.work.rows)
    parts.open(Reached(num_lines=int(is_known)))
    state.write(identity, Reached())
    windows = list(_windows_of(job))
    left = [each for each in windows if not parts.path_of(each["first"]).exists()]
    before = _reached(parts, [each for each in windows if each not in left])
    if left:
        _compute(job, address, repository, num_actors, num_cpus, left, before)
    reached = _reached(parts, windows)
    parts.finish(reached)
    state.remove()
    return before, reached


def _windows_of(job: Job) -> Iterator[dict[str, int]]:
    """Each window's first line, its place, and its number of lines."""
    place = 0
    with job.source.open() as texts:
        while lines := next_lines(texts, job.window_lines):
            yield {"first": lines[0].number, "place": place, "num_lines": len(lines)}
            place = lines[-1].place


def _compute(
    job: Job,
    address: str,
    repository: Path,
    num_actors: int,
    num_cpus: int,
    left: list[dict[str, int]],
    before: Reached,
) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SettingError(f"--engine ray {address}: no cluster answers there: {error}") from error
    try:
        num_fitting = int(ray.cluster_resources().get("CPU", 0)) // num_cpus
        if not num_fitting:
            raise SettingError(
                f"--actor-cpus is {num_cpus}, and the cluster at {address} has "
                f"{ray.cluster_resources().get('CPU', 0):.0f} processors: give fewer"
            )
        most = min(num_actors or num_fitting, len(left))
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        done = ray.data.from_items(left, override_num_blocks=min(len(left), MAX_BLOCKS)).map(
            WindowActor,
            fn_constructor_args=(job, str(repository), num_cpus),
            concurrency=(1, most, most),  # least, most, and at first
            num_cpus=num_cpus,
        )
        num_lines = before.num_lines
        total = num_lines + sum(each["num_lines"] for each in left)
        with progress("line", total, num_lines, num_lines) as advance:
            for row in done.iter_rows():
                num_lines += row["num_lines"]
                advance(num_lines, num_lines)
    except (ray.exceptions.RayError, ray.exceptions.RayTaskError) as error:
        cause = getattr(error, "cause", None) or error
        raise AttendantError(f"the Ray job failed; the same command goes on: {cause}") from error
    finally:
        ray.shutdown()


class WindowActor:
    """A session on one node; each call computes a window and leaves its part."""

    def __init__(self, job: Job, repository: str, num_cpus: int) -> None:
        self._job = job
        self._parts = Parts(job.output, job.work.rows)
        model = job.model
        self._client = InProcess(
            Path(repository), model["model"], num_threads=num_cpus, precision=model["precision"]
        )

    def __call__(self, window: dict[str, Any]) -> dict[str, Any]:
        first, place = int(window["first"]), int(window["place"])
        path = self._parts.path_of(first)
        if not path.exists():  # else it was written, and the answer was lost with its node
            self._compute(first, place)
        return {"num_lines": int(window["num_lines"])}

    def _compute(self, first: int, place: int) -> None:
        job = self._job
        with job.source.open(first - 1, place) as texts:
            lines = next_lines(texts, job.window_lines)
        windows = Windows(GivenLines(lines), job.window_lines)
        ask = job.work.ask(self._client)
        for window in answered_windows(job.work, ask, windows, job.in_flight, job.patience_s):
            self._parts.write(window, Reached())


def _reached(parts: Parts, windows: list[dict[str, int]]) -> Reached:
    """The sums of parts that are done. Raises `AttendantError` for one that is not whole."""
    num_lines = num_refused = num_empty = 0
    for window in windows:
        path = parts.path_of(window["first"])
        if num_rows_of(path) != window["num_lines"]:
            raise AttendantError(f"'{path}' has not the rows of its window: --restart begins anew")
        num_lines += window["num_lines"]
        if errors_path(path).exists():
            reasons = [json.loads(line)["reason"] for line in errors_path(path).open("rb")]
            num_empty += reasons.count(EMPTY)
            num_refused += len(reasons) - reasons.count(EMPTY)
    return Reached(num_lines=num_lines, num_refused=num_refused, num_empty=num_empty)
