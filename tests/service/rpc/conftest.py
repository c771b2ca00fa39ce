"""One server for all tests of a file; a file with other models has its own `server`."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.fakes.serving import Served, serving, write_models


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    """With the models of `write_models`, and the settings in the file's `SETTINGS`."""
    repository = tmp_path_factory.mktemp("model_repository")
    write_models(repository)
    async with serving(repository, **getattr(request.module, "SETTINGS", {})) as running:
        yield running


@pytest.fixture
def served(server: Served) -> Iterator[Served]:
    """The file's server, which forgets after each test what the test did to its models."""
    yield server
    server.forget()
