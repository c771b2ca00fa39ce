"""One browser and one server for all tests of a file, a new page for each test.

A file sets `SERVE` (by default fake models of every task) and `SETTINGS`, or gives a fixture
`address` of its own, `http://host:port/`, of a server of real models.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.fakes.every_task import every_task
from tests.fakes.serving import Served
from tests.playground.browsers import Opened, chromium, opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    browser: Browser, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    settings = {"http_port": 0} | getattr(request.module, "SETTINGS", {})
    serve = getattr(request.module, "SERVE", every_task)
    async with serve(tmp_path_factory.mktemp("model_repository"), **settings) as running:
        yield running


@pytest.fixture(scope="module")
def address(server: Served) -> str:
    return f"http://127.0.0.1:{server.app.http_port}/"


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, address: str) -> AsyncIterator[Opened]:
    """A new page; the test fails where it complains."""
    async with opened(browser, address) as given:
        yield given
