"""No message takes the server down, gets an answer that tells of a bug, or disturbs another."""

import random
from collections.abc import Iterator

import pytest

from tests.fuzz.messages import Method, all_methods, damaged
from tests.fuzz.server import Target, target

NUM_SEEDS = 60  # messages per method here; `python -m tests.fuzz.explore` goes on for longer


@pytest.fixture(scope="module")
def under_fire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("repository")) as server:
        yield server


@pytest.mark.parametrize("method", all_methods(), ids=lambda method: method.name)
def test_no_message_does_harm(under_fire: Target, method: Method) -> None:
    """Every kept message, and random ones, whole and damaged."""
    for message in method.corpus():
        under_fire.send(method, message)
    for seed in range(NUM_SEEDS):
        generator = random.Random(seed)  # noqa: S311 - the same each time
        message = method.request(generator)
        under_fire.send(method, message, damaged(message, generator))
        under_fire.send(method, damaged(message, generator), message)
    under_fire.check()
