"""Serve what stands and build the rest beside it: what `make serve` does.

    python -m demos.background [--all] [--model-repository FOLDER] [flags of `attendant serve`]

This process becomes the server, which polls the repository, so that a signal to it is a signal to
the server. A child builds one model after the other, at a lower priority, and says so in a line
each. Ctrl-C reaches both; the child also ends when the server does. A training that is stopped
saves its state, and the next call goes on from there.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from demos.demo import DEFAULT_FOLDER, PROGRAMS, REPOSITORY
from demos.keeping import keep
from demos.server import ATTENDANT
from demos.steps import Places
from demos.systems import DEMOS, Demo
from service.observe.building import FILE, file_of

LOG = Path("build/background.log")
WALL_PER_COST = 0.6  # seconds on two idle cores per second of processor time, before it is measured
POLL_S = 2.0  # a model is loaded after two looks, and a look costs a stat per file
PRIORITY = 10  # added to the niceness: requests come first
STOP_LIMIT_S = 60.0  # for a training to save its state
PARENT_POLL_S = 1.0

Run = Callable[[Sequence[str]], int]


@dataclass(frozen=True, slots=True)
class Build:
    """One system to build: its commands, which give an exit code, and what it costs."""

    name: str
    cost_s: float  # processor time
    build: Callable[[Run], int]
    models: tuple[str, ...] = ()


def gpt_of(repository: Path) -> list[Build]:
    """The default model that takes minutes to train; none where it stands."""
    if (repository / "gpt").exists():
        return []
    command = ("make", "--no-print-directory", f"{repository}/gpt")
    return [Build("gpt", DEMOS["gpt"].cost_s, lambda run: run(command), ("gpt",))]


def demos_of(repository: Path, folder: Path = DEFAULT_FOLDER) -> list[Build]:
    """A small model for each screen of the page, the cheapest first, without those that stand."""
    return [
        Build(
            name,
            demo.cost_s,
            _building(demo, Places(folder / name), repository),
            tuple(demo.models),
        )
        for name, demo in sorted(DEMOS.items(), key=lambda item: item[1].cost_s)
        if demo.cost_s and not all((repository / model).exists() for model in demo.models)
    ]


def _building(demo: Demo, places: Places, repository: Path) -> Callable[[Run], int]:
    def build(run: Run) -> int:
        places.folder.mkdir(parents=True, exist_ok=True)
        for step in demo.steps:
            model = step.exported
            is_needless = model and (model not in demo.models or (repository / model).exists())
            if is_needless or step.is_done(places):
                continue
            if exit_code := run(step.arguments(places)):
                return exit_code
        keep(demo, places, repository)
        return 0

    return build


def minutes(seconds: float) -> str:
    """A duration in words, for people who wait."""
    count = max(1, round(seconds / 60))
    return "about a minute" if count == 1 else f"about {count} minutes"


def build_all(
    builds: Sequence[Build],
    run: Run,
    say: Callable[[str], None],
    now_s: Callable[[], float] = time.monotonic,
    plan: Callable[[Sequence[Build], float], None] = lambda _builds, _pace: None,
) -> None:
    """Build each, and say which joins and how long the others take.

    `plan` gets those that are left, and the seconds that a second of their cost takes, before each
    build and at the end. The time left is by the pace so far: other work, requests among it, makes
    it longer.
    """
    total_s = sum(build.cost_s for build in builds)
    names = ", ".join(build.name for build in builds)
    say(
        f"built in the background: {names}; {minutes(total_s * WALL_PER_COST)}. What is built "
        "joins the server by itself"
    )
    began_s, done_s = now_s(), 0.0
    for number, build in enumerate(builds, 1):
        plan(builds[number - 1 :], (now_s() - began_s) / done_s if done_s else WALL_PER_COST)
        exit_code = build.build(run)
        done_s += build.cost_s
        if exit_code:
            say(f"{build.name} was not built: exit code {exit_code}, see {LOG}")
        else:
            say(f"{build.name} is built and joins the server")
        if number < len(builds):
            left_s = (total_s - done_s) * (now_s() - began_s) / done_s
            say(f"{number} of {len(builds)} done, {minutes(left_s)} left")
    plan((), WALL_PER_COST)


class Runner:
    """Runs commands one after the other, their output in a file, until it is stopped.

    Guarded by `_lock`: the process that runs, and whether there may be another.
    """

    def __init__(self, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self.is_stopped = False

    def __call__(self, arguments: Sequence[str]) -> int:
        program, *rest = arguments
        command = [*PROGRAMS.get(program, (program,)), *rest]
        with self._log.open("ab") as log:
            with self._lock:
                if self.is_stopped:
                    return 1
                self._process = subprocess.Popen(  # noqa: S603 - our own commands
                    command,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,  # a terminal's Ctrl-C comes by `stop`, and once
                )
            return self._process.wait()

    def stop(self) -> None:
        """End what runs; a training saves its state first."""
        with self._lock:
            self.is_stopped = True
            process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT_S)


class Plan:
    """What is being built, in a file of the repository from which the server tells its page."""

    def __init__(self, repository: Path) -> None:
        self._path = repository / FILE

    def __call__(self, builds: Sequence[Build], pace: float) -> None:
        if not builds:
            self.end()
            return
        planned = [(build.name, build.models, max(1.0, build.cost_s * pace)) for build in builds]
        staging = self._path.with_name(f"{FILE}.new")
        with contextlib.suppress(OSError):  # what cannot be written is not shown
            staging.write_text(file_of(time.time(), planned))
            staging.rename(self._path)

    def renew(self) -> None:
        """Say that the builder still runs."""
        with contextlib.suppress(OSError):
            os.utime(self._path)

    def end(self) -> None:
        """Take the file away."""
        self._path.unlink(missing_ok=True)


def build_beside(builds: Sequence[Build], server: int, repository: Path) -> None:
    """Build until all stand, a signal comes, or the process of that number, our parent, ends."""
    os.nice(PRIORITY)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    runner, plan = Runner(LOG), Plan(repository)

    def stop(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        threading.Thread(target=runner.stop).start()  # it takes a lock that we may hold

    def watch() -> None:
        while os.getppid() == server:
            time.sleep(PARENT_POLL_S)
            plan.renew()
        runner.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    threading.Thread(target=watch, daemon=True).start()

    def say(line: str) -> None:
        if not runner.is_stopped:
            console.print(line)

    build_all(builds, runner, say, plan=plan)
    if runner.is_stopped:
        console.print("building stopped; the same command goes on from here")


def main(repository: Path, *, has_all: bool, flags: Sequence[str] = ()) -> None:
    """Begin to build what is not there, and become the server."""
    builds = demos_of(repository) if has_all else gpt_of(repository)
    if builds:
        server = os.getpid()
        if os.fork() == 0:
            try:
                build_beside(builds, server, repository)
            finally:
                os._exit(0)
    polling = ("--model-control-mode", "poll", "--repository-poll-s", str(POLL_S))
    command = [*ATTENDANT, "serve", "--model-repository", str(repository), *polling, *flags]
    os.execv(ATTENDANT[0], command)  # noqa: S606 - our own command


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--all", action="store_true", help="build a model for each screen")
    parser.add_argument("--model-repository", type=Path, default=REPOSITORY)
    parsed, others = parser.parse_known_args()
    main(parsed.model_repository, has_all=parsed.all, flags=others)
