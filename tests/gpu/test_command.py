"""The command as it is run: within its budget, ended by a signal, and without a GPU."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fakes.checkout import ROOT, interpreter_without_us

BUDGET_S = 30.0
SIGNAL_AFTER_S = 8.0
LIMIT_S = 240.0  # for the end of a process on a busy machine
pytestmark = pytest.mark.timeout(2 * LIMIT_S)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter_without_us(tmp_path_factory.mktemp("environment"))


def start(python: Path, out: Path, *flags: str, device: str = "cpu") -> "subprocess.Popen[str]":
    """The command from a checkout that is not installed, marked so that its processes are found."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.Popen(  # noqa: S603 - our own interpreter
        [python, "-m", "loadtests.gpu", "--device", device, "--tiny", "--out", out, *flags],
        cwd=ROOT,
        env=environment | {"GPU_CHECK_OF_TEST": str(out)},
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(out: Path) -> list[str]:
    """The processes that a command over a folder has left running."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = (path / "environ").read_bytes()
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has ended meanwhile
            continue
        if f"GPU_CHECK_OF_TEST={out}".encode() in environment and state != "Z":
            found.append((path / "cmdline").read_text().replace("\0", " "))
    return found


def left_running(out: Path) -> list[str]:
    """The same, after a few seconds in which helpers of an ended process end."""
    ends_s = time.monotonic() + 10
    while (found := processes_of(out)) and time.monotonic() < ends_s:
        time.sleep(0.1)
    return found


def test_the_command_ends_within_its_budget_and_names_what_it_left_out(
    python: Path, tmp_path: Path
) -> None:
    """The budget is too small for all sections: those that cannot end are not begun."""
    started_s = time.monotonic()
    process = start(python, tmp_path, "--budget", f"{BUDGET_S:g}")
    process.communicate(timeout=LIMIT_S)
    assert time.monotonic() - started_s < BUDGET_S + 1.0  # and the start of the interpreter
    text = (tmp_path / "report.md").read_text()
    left_out = text[text.index("## Left out") : text.index("## 1.")]
    for number in (7, 8, 9, 10):
        assert f"section {number}, " in left_out
    report = json.loads((tmp_path / "report.json").read_text())
    assert len(report["sections"]) == 10
    assert {each["state"] for each in report["sections"]} >= {"done", "not begun"}
    assert not left_running(tmp_path)


def test_sigterm_ends_all_processes_and_writes_the_report(python: Path, tmp_path: Path) -> None:
    process = start(python, tmp_path, "--budget", "200")
    time.sleep(SIGNAL_AFTER_S)
    process.send_signal(signal.SIGTERM)
    started_s = time.monotonic()
    process.communicate(timeout=LIMIT_S)
    assert time.monotonic() - started_s < 60
    assert process.returncode == 1
    assert "the command was ended by SIGTERM" in (tmp_path / "report.md").read_text()
    assert not left_running(tmp_path)


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_without_a_gpu_the_command_stops_at_its_gate_with_a_diagnosis(
    python: Path, tmp_path: Path
) -> None:
    process = start(python, tmp_path, "--budget", "120", device="cuda")
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    text = (tmp_path / "report.md").read_text()
    assert "a session runs on cuda: device cuda is requested, but CUDA cannot be used" in text
    assert "Diagnosis: onnxruntime: " in text
    for number in range(2, 11):
        assert "not begun: section 1 failed, and the others need what it checks" in text
        (path,) = tmp_path.glob(f"{number:02d}-*.json")
        assert json.loads(path.read_text())["state"] == "not begun"
    assert not list(tmp_path.glob("work/models-*/*-fp*"))
