"""No tenant can tell by time what another one asked: another `cache_salt` gains nothing from it.

What was computed is counted first. Times are compared within a round only, and by the median of all
rounds; further rounds, of which there are at most `MOST_ROUNDS`, are for machines that are busy.
They could hide no leak: of 1,008 tokens 992 would not be computed.
"""

import statistics
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from loadtests.load.engine import Prompt, run_one, serving, vocab_size_of
from loadtests.load.turns import turns
from loadtests.measure.prefixes import NAME, make_decoder
from service.generation.cache.kv_cache import MIN_REACH
from service.generation.cache.prefix_store import PIECE_TOKENS
from service.generation.sequence import Sequence
from service.records import RanStep
from service.serving.generative_model import GenerativeModel
from tests.fakes.serving import eventually

LAYERS, WIDTH = 4, 256
SHARED, OWN = 31 * PIECE_TOKENS, 16  # tokens of a prompt: its beginning, and what is behind it
KV_CACHE_BYTES = 2**28  # 32 slots of 8 MiB
WAYS = ("same", "foreign", "unseen")
ROUNDS, MOST_ROUNDS = 5, 25
MOST_SAME, LEAST_FOREIGN = 0.5, 0.7  # a foreign salt's time is 1; an unseen prompt's time is 1


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("salts")
    make_decoder(folder, LAYERS, WIDTH, SHARED + 2 * OWN)
    return folder


class Tenants:
    """A served decoder, asked under salts; each answer's computed tokens are counted."""

    def __init__(self, model: GenerativeModel, steps: list[RanStep]) -> None:
        self._model, self._steps = model, steps
        self._generator = np.random.default_rng(0)

    def tokens(self, number: int) -> list[int]:
        ids: list[int] = self._generator.integers(1, vocab_size_of(self._model), number).tolist()
        return ids

    async def ask(self, beginning: list[int], salt: str) -> Sequence:
        """The sequence of a prompt with an end of its own."""
        self._steps.clear()
        sequence = await run_one(
            self._model, Prompt(beginning + self.tokens(OWN), 1), cache_salt=salt
        )
        num_new = sequence.num_prompt_tokens - sequence.num_reused_tokens
        await eventually(lambda: sum(step.num_tokens for step in self._steps) == num_new)
        return sequence

    async def take_every_slot(self) -> None:
        for _ in range(2 * MIN_REACH):
            await self.ask(self.tokens(OWN), "others")


async def rounds_of(tenants: Tenants, *, is_stored: bool) -> AsyncIterator[dict[str, float]]:
    """Seconds to the first token by way, round by round; the first round warms up."""
    names = count()
    for index, order in enumerate(_orders()):
        times_s: dict[str, float] = {}
        system, salt = tenants.tokens(SHARED), f"tenant {next(names)}"
        await tenants.ask(system, salt)
        for way in order:
            if is_stored:
                await tenants.take_every_slot()
            own = salt if way == "same" else f"tenant {next(names)}"
            beginning = tenants.tokens(SHARED) if way == "unseen" else system
            sequence = await tenants.ask(beginning, own)
            assert sequence.num_reused_tokens == (SHARED if way == "same" else 0), way
            assert sequence.num_stored_tokens == (SHARED if way == "same" and is_stored else 0)
            times_s[way] = sequence.timings.time_to_first_token_s
        if index:
            yield times_s


def _orders() -> list[list[str]]:
    """The ways of each round, in an order that is reversed in every other one."""
    flat = [way for way, _ in turns(WAYS, MOST_ROUNDS)]
    return [flat[first : first + len(WAYS)] for first in range(0, len(flat), len(WAYS))]


@pytest.mark.parametrize("is_stored", [False, True], ids=["in its slot", "in the store"])
async def test_a_prompt_of_another_salt_takes_the_time_of_one_that_was_never_asked(
    repository: Path, is_stored: bool
) -> None:
    """The same salt: less than half of another's; that: more than 0.7 of an unseen prompt's."""
    steps: list[RanStep] = []
    same: list[float] = []
    foreign: list[float] = []
    async with serving(repository, NAME, steps, kv_cache_bytes=KV_CACHE_BYTES) as model:
        async for times_s in rounds_of(Tenants(model, steps), is_stored=is_stored):
            same.append(times_s["same"] / times_s["foreign"])
            foreign.append(times_s["foreign"] / times_s["unseen"])
            is_clear = (
                statistics.median(same) < MOST_SAME and statistics.median(foreign) > LEAST_FOREIGN
            )
            if len(same) >= ROUNDS and is_clear:
                break
    assert statistics.median(same) < MOST_SAME, same
    assert statistics.median(foreign) > LEAST_FOREIGN, foreign
