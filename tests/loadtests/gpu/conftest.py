"""One folder for all tests that run sections with tiny models, so that those are built once."""

import os

import pytest

from loadtests.gpu.context import Run


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on the CPU; processes that run tests share its folder."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tiny-gpu-check"
    run = Run(folder, "cpu", is_tiny=True)
    run.work.mkdir(parents=True, exist_ok=True)
    return run
