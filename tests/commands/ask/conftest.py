"""One server for all tests of a file."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fakes.serving import Served, default_sessions, serving, write_models
from tests.fakes.sessions import FakeSessions, write_model
from tests.fakes.tasks import features_manifest, hidden_states_session


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """With the models of `write_models`, and `deep`, which has the features of four layers."""
    repository = tmp_path_factory.mktemp("model_repository")
    write_models(repository)
    write_model(repository, "deep", features_manifest())
    sessions = FakeSessions(**default_sessions()._makers, deep=hidden_states_session)
    async with serving(repository, sessions) as running:
        yield running
