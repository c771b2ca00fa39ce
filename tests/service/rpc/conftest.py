"""One server for all tests of a file.

A file names the `SETTINGS` of its server, and as `SERVE` what starts it, where it needs other
models than those of `write_models`.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.serving import Served, serving, write_models


@asynccontextmanager
async def usual_models(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_models(repository)
    async with serving(repository, **settings) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    serve = getattr(request.module, "SERVE", usual_models)
    settings = getattr(request.module, "SETTINGS", {})
    async with serve(tmp_path_factory.mktemp("model_repository"), **settings) as running:
        yield running


@pytest.fixture
def served(server: Served) -> Iterator[Served]:
    """The file's server, which forgets after each test what the test did to its models."""
    yield server
    server.forget()
