"""One server with an HTTP port for all tests of a file: its `SETTINGS`, started by its `SERVE`."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.fakes.every_task import every_task
from tests.fakes.serving import Served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    settings = {"http_port": 0} | getattr(request.module, "SETTINGS", {})
    serve = getattr(request.module, "SERVE", every_task)
    async with serve(tmp_path_factory.mktemp("model_repository"), **settings) as running:
        yield running


@pytest.fixture
def served(server: Served) -> Iterator[Served]:
    """The file's server, which forgets after each test what the test did to its models."""
    yield server
    server.forget()
