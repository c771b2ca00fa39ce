"""A server of default models, for the screens that are tested with real ones."""

from collections.abc import Iterator
from contextlib import contextmanager

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
    flags = "--model-control-mode", "explicit", "--load-models", ",".join(names)
    with ServerProcess(repository, *flags, "--http-port", "0", "--max-queue-s", "0") as process:
        yield process
