"""A program of the repository that lacks an optional library says what to install."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands.missing import EXTRAS

ROOT = Path(__file__).parents[2]
HIDING = """
import os, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["HIDDEN"].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize(
    ("program", "hidden", "extras"),
    [
        ("loadtests.compare", "matplotlib", "cpu,loadtest"),
        ("loadtests.gpu", "torch", "cpu,loadtest,train"),
        ("loadtests.measure", "onnx", "cpu,loadtest"),
        ("loadtests.measure prefixes", "torch", "cpu,loadtest,train"),
        ("demos.pretraining", "torch", "cpu,loadtest,train"),
    ],
)
def test_a_program_without_its_extra_ends_with_a_sentence(
    tmp_path: Path, program: str, hidden: str, extras: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    path = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "protos")))
    result = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-m", *program.split()],
        env={**os.environ, "PYTHONPATH": path, "HIDDEN": hidden, "COLUMNS": "200"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    assert result.stderr == (
        f"attendant: error: python -m {program.split()[0]} needs {hidden}: "
        f"pip install 'attendant[{extras}]'\n"
    )


def test_every_extra_that_is_named_is_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for extras in EXTRAS.values():
        for extra in extras.split(","):
            assert f"\n{extra} = [" in text
