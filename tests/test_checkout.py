"""A checkout runs with the packages of a machine on which it is not installed itself."""

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.fakes.checkout import environment_without_metadata, interpreter_without_us


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interpreter_without_us(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment_without_metadata(tmp_path_factory.mktemp("checkout"))


def printed(python: Path, environment: dict[str, str], script: str) -> list[str]:
    result = subprocess.run(  # noqa: S603 - our own interpreter
        [python, "-c", script],
        env=environment,
        cwd=python.parent,  # where it looks first, and finds nothing of ours
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout.split("\n")[:-1]


def test_versions_are_told_where_nothing_of_ours_is_installed(
    python: Path, environment: dict[str, str]
) -> None:
    script = """
from service import __version__
from export.settings import versions
print(__version__)
print(versions()["attendant"])
print(versions()["torch"])
"""
    assert printed(python, environment, script) == ["0+checkout", "0+checkout", version("torch")]


def test_the_version_of_any_build_of_onnxruntime_is_told(
    python: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """The build for CUDA is a distribution of another name."""
    folder = tmp_path / "onnxruntime_gpu-9.9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: onnxruntime-gpu\nVersion: 9.9\n")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from export.settings import versions
print(versions()["onnxruntime"])
"""
    assert printed(python, environment, script) == ["9.9"]
