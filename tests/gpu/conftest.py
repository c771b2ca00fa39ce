"""The device of these tests: a GPU where one can be used, else the CPU with the smallest models."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loadtests.gpu.context import Context, Run
from loadtests.gpu.models import Wanted, export, models_of
from loadtests.gpu.sections import TINY_SHAPES, shapes_of
from service.runtime.session import cuda_obstacle

LIMIT_S = 300.0  # on a busy machine
Exported = Callable[..., Context]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in a folder of its own, so that models are exported once for all tests of a process."""
    has_gpu = not cuda_obstacle()
    shapes = shapes_of("", is_tiny=False) if has_gpu else TINY_SHAPES[:2]
    folder: Path = tmp_path_factory.mktemp("gpu")
    return Run(folder, "cuda" if has_gpu else "cpu", not has_gpu, shapes, "compiled")


@pytest.fixture
def exported(run: Run) -> Exported:
    """A context for a section for which these models are there, whatever its time is."""

    def context(*wanted: Wanted) -> Context:
        for model in models_of(run, *wanted):
            model.repository.mkdir(parents=True, exist_ok=True)
            if not model.is_over:
                export(model, run)
        return Context(run, "test", time.monotonic() + LIMIT_S)

    return context
