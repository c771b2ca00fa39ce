"""Fixtures of the server's tests; other folders have their own."""

from pathlib import Path

import pytest

from tests.fakes.serving import write_models


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty model repository."""
    folder = tmp_path / "model_repository"
    folder.mkdir()
    return folder


@pytest.fixture
def models(repository: Path) -> Path:
    """The repository with the models of `write_models`."""
    write_models(repository)
    return repository
