"""`make serve`: what stands is served, the rest is built beside it, and one signal ends both."""

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from demos.background import WALL_PER_COST, Build, build_all, demos_of, gpt_of, minutes
from demos.keeping import keep
from demos.steps import Places
from demos.systems import DEMOS
from service.observe.building import builds_in
from tests.e2e.server import PLAIN

ROOT = Path(__file__).parents[2]
SAVED = ROOT / "tests/saved/repository"
LIMIT_S = 120.0  # the cores are shared with other tests
# In place of the project's: `gpt` is there when a file says so, and a training saves its state.
MAKEFILE = """
repository/gpt:
	python3 training.py
	cp -r saved/gpt repository/gpt
"""
TRAINING = """
import pathlib, signal, sys, time
def stop(*_):
    with open("state", "a") as state:
        state.write("saved\\n")
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
pathlib.Path("started").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout of which one model is built."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "training.py").write_text(TRAINING)
    shutil.copytree(SAVED / "encoder-embedder", tmp_path / "repository/minilm")
    (tmp_path / "saved").mkdir()
    shutil.copytree(SAVED / "gpt", tmp_path / "saved/gpt")
    return tmp_path


class Serving:
    """The lines of a `demos.background` so far, standard output and errors together."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None, "it is a pipe"
        for line in self.process.stdout:
            self._lines.put(line)

    def wait_for(self, pattern: str) -> None:
        lines: list[str] = []
        until_s = time.monotonic() + LIMIT_S
        while time.monotonic() < until_s:
            with suppress(queue.Empty):
                lines.append(self._lines.get(timeout=0.1))
                if re.search(pattern, lines[-1]):
                    return
        pytest.fail(f"no line has {pattern!r}:\n{''.join(lines)}")


@contextmanager
def serving(folder: Path) -> Iterator[Serving]:
    """It runs in a process group of its own, as a shell starts a command."""
    ports = ("--grpc-port", "0", "--http-port=-1", "--metrics-port", "0")
    command = [sys.executable, "-m", "demos.background", "--model-repository", "repository", *ports]
    with subprocess.Popen(  # noqa: S603 - our own command
        command,
        cwd=folder,
        env=os.environ | PLAIN | {"PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield Serving(process)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < until_s, "it never came"
        time.sleep(0.02)


def test_what_is_still_trained_joins_the_server_by_itself(folder: Path) -> None:
    """The server is ready before; the model's line comes, then the server's."""
    with serving(folder) as server:
        server.wait_for(r"built in the background: gpt; about \d+ minutes\. What is built")
        server.wait_for("gRPC .* metrics")
        assert not (folder / "repository/gpt").exists()
        (told,) = builds_in(folder / "repository", time.time())
        assert (told["name"], told["models"]) == ("gpt", ["gpt"])
        assert 0 <= told["share"] < 1
        assert told["left_seconds"] > 0
        (folder / "go").touch()
        server.wait_for("gpt is built and joins the server")
        wait_until(lambda: not builds_in(folder / "repository", time.time()))
        server.wait_for("loaded 'gpt' version 1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_both_and_the_training_saves_its_state(
    folder: Path, number: signal.Signals
) -> None:
    """Ctrl-C comes to the whole group, the others to the server alone."""
    with serving(folder) as server:
        server.wait_for("gRPC .* metrics")
        wait_until((folder / "started").exists)
        if number == signal.SIGINT:
            os.killpg(server.process.pid, number)
        else:
            server.process.send_signal(number)
        exit_code = server.process.wait(LIMIT_S)
        assert exit_code == (-number if number == signal.SIGKILL else 0)
        wait_until((folder / "state").exists)
        server.wait_for("building stopped; the same command goes on from here")
    assert (folder / "state").read_text() == "saved\n", "one signal, not two"
    assert not (folder / "repository/gpt").exists()


def test_where_all_models_stand_nothing_is_built(tmp_path: Path) -> None:
    (tmp_path / "gpt").mkdir()
    assert gpt_of(tmp_path) == []
    for demo in DEMOS.values():
        for name in demo.models:
            (tmp_path / name).mkdir(exist_ok=True)
    assert demos_of(tmp_path) == []


def test_every_screen_gets_a_model_the_cheapest_first(tmp_path: Path) -> None:
    builds = demos_of(tmp_path)
    costs = [build.cost_s for build in builds]
    assert costs == sorted(costs)
    assert {build.name for build in builds} == set(DEMOS) - {"ladder"}


def test_models_of_different_demos_have_different_names() -> None:
    """And none that of a default model, but for `gpt`, which is the same."""
    names = [name for demo in DEMOS.values() for name in demo.models]
    assert len(set(names)) == len(names)
    assert not {"minilm", "spam"} & set(names)


def test_a_demo_is_built_from_where_it_was_and_kept(tmp_path: Path) -> None:
    """Of its commands those run whose model is not there yet; both models appear at the end."""
    repository, demo = tmp_path / "repository", DEMOS["attention"]
    places = Places(tmp_path / "attention")
    commands: list[Sequence[str]] = []

    def run(arguments: Sequence[str]) -> int:
        commands.append(arguments)
        if arguments[:2] == ["attendant", "export"]:
            (places.folder / "repository/attention/1").mkdir(parents=True)
        return 0

    (build,) = (each for each in demos_of(repository, tmp_path) if each.name == "attention")
    assert build.build(run) == 0
    assert [arguments[1] for arguments in commands][-1] == "export"
    assert (repository / "attention/1").is_dir()
    assert keep(demo, places, repository) == [], "it is there already"
    assert not [each for each in demos_of(repository, tmp_path) if each.name == "attention"]


def test_a_kept_model_shares_its_files_and_a_taken_name_stays_as_it_is(tmp_path: Path) -> None:
    demo, places, repository = DEMOS["digits"], Places(tmp_path / "demo"), tmp_path / "served"
    for name in demo.models:
        (places.folder / "repository" / name / "1").mkdir(parents=True)
        (places.folder / "repository" / name / "1/model.onnx").write_text(name)
    (repository / "digits").mkdir(parents=True)
    assert keep(demo, places, repository) == ["digits-attention"]
    kept = repository / "digits-attention/1/model.onnx"
    assert kept.samefile(places.folder / "repository/digits-attention/1/model.onnx")
    assert not list((repository / "digits").iterdir())
    assert not list(repository.glob(".*"))


def test_each_build_says_that_it_joins_and_how_long_the_others_take() -> None:
    """By the pace so far: 30 s for a cost of 10 are 90 s for one of 30."""
    now_s = [0.0]
    lines: list[str] = []

    def building(seconds: float, exit_code: int = 0) -> Callable[[object], int]:
        def build(_: object) -> int:
            now_s[0] += seconds
            return exit_code

        return build

    builds = [
        Build("one", 10, building(30)),
        Build("two", 20, building(30, exit_code=3)),
        Build("three", 10, building(30)),
    ]
    plans: list[tuple[list[str], float]] = []
    build_all(
        builds,
        lambda _: 0,
        lines.append,
        lambda: now_s[0],
        lambda left, pace: plans.append(([build.name for build in left], pace)),
    )
    first = (["one", "two", "three"], WALL_PER_COST)
    assert plans[:3] == [first, (["two", "three"], 3.0), (["three"], 2.0)]
    assert plans[3:] == [([], WALL_PER_COST)]
    assert lines == [
        "built in the background: one, two, three; about a minute. What is built joins "
        "the server by itself",
        "one is built and joins the server",
        "1 of 3 done, about 2 minutes left",
        "two was not built: exit code 3, see build/background.log",
        "2 of 3 done, about a minute left",
        "three is built and joins the server",
    ]


def test_a_duration_is_said_in_minutes() -> None:
    assert [minutes(s) for s in (3, 89, 91, 600)] == [
        "about a minute",
        "about a minute",
        "about 2 minutes",
        "about 10 minutes",
    ]
