"""Each client that is installed, against one server; `python -m tests.ecosystem` installs them."""

from collections.abc import Iterator

import pytest

from tests.ecosystem.clients import CLIENTS, Client
from tests.ecosystem.models import served

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with served(tmp_path_factory.mktemp("ecosystem")) as found:
        yield found


@pytest.fixture(params=CLIENTS, ids=lambda client: client.script.name)
def client(request: pytest.FixtureRequest) -> Client:
    """A client whose environment exists: no test installs from a network."""
    each: Client = request.param
    if not each.is_installed:
        pytest.skip(f"not installed: python -m tests.ecosystem --client {each.name}")
    return each


def test_a_client_works_unmodified(client: Client, variables: dict[str, str]) -> None:
    assert client.run(variables) == ""


def test_no_two_clients_are_the_same_script() -> None:
    scripts = [each.script for each in CLIENTS]
    assert len(set(scripts)) == len(scripts)
    assert all(script.exists() for script in scripts)
