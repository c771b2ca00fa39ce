"""Fixtures of the server's tests; other folders have their own."""

from pathlib import Path

import pytest


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An empty model repository."""
    folder = tmp_path / "model_repository"
    folder.mkdir()
    return folder
