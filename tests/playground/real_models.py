"""Servers of default models, and of small saved ones, for tests of screens."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.e2e.server import ServerProcess


@contextmanager
def served(*names: str) -> Iterator[ServerProcess]:
    """A server of these models; its page is at `http://{http_address}/`."""
    repository = ROOT / "model_repository"
    for name in names:
        if not (repository / name / "1").is_dir():
            pytest.fail(f"{repository / name} is missing: run `make models`")
    with _served(repository, names) as process:
        yield process


@contextmanager
def saved(*names: str) -> Iterator[ServerProcess]:
    """The same of models of `tests/saved`."""
    with _served(ROOT / "tests" / "saved" / "repository", names) as process:
        yield process


def _served(repository: Path, names: Iterable[str]) -> ServerProcess:
    flags = "--model-control-mode", "explicit", "--load-models", ",".join(names)
    return ServerProcess(repository, *flags, "--http-port", "0", "--max-queue-s", "0")
