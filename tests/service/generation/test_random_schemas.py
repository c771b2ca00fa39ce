"""Schemas that hypothesis makes, on three models at random: every answer that ends is valid."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as some

from service.errors import InvalidArgument
from service.generation.engine import GenerationEngine
from tests.fakes.generation import RecordingObserver
from tests.fakes.grammars import Case, piece_compiler
from tests.fakes.schemas import SCHEMAS, case_of
from tests.service.generation.test_grammars import check, engine_of, outputs

pytest.importorskip("llguidance")
NUM_PARTS = 10  # each within a test's time on a machine that is shared
NUM_SCHEMAS = 20  # of a part
NUM_MODELS = 3
MAX_TOKENS = 80
PREFIX = b"A system prompt that all requests share. " * 8
MOST_ENDED = 3 * NUM_MODELS * NUM_SCHEMAS  # of a part: an answer and two samples of each


@dataclass(frozen=True, slots=True)
class Asked:
    """An engine, and what it tells."""

    engine: GenerationEngine
    observer: RecordingObserver

    async def num_ended(self, case: Case) -> int:
        """How many of an answer and two samples ended, all of them valid."""
        self.observer.ended.clear()
        greedy = await outputs(
            self.engine, case.grammar, prompt=PREFIX + b"1", max_tokens=MAX_TOKENS
        )
        drawn = await outputs(
            self.engine,
            case.grammar,
            prompt=PREFIX + b"2",
            max_tokens=MAX_TOKENS,
            temperature=1.0,
            n=2,
            seed=1,
        )
        reused = [sequence.num_reused_tokens for sequence in self.observer.ended]
        assert min(sorted(reused)[1:]) >= len(PREFIX), "both samples copy the prefix"
        return check(case, [*greedy, *drawn])


async def opened(stack: AsyncExitStack) -> list[tuple[Asked, Asked]]:
    """An engine of each model without drafts, and one with."""

    async def engine(model: int, *, drafts: bool) -> Asked:
        observer = RecordingObserver()
        return Asked(
            await stack.enter_async_context(engine_of(model, observer, drafts=drafts)), observer
        )

    return [
        (await engine(model, drafts=False), await engine(model, drafts=True))
        for model in range(NUM_MODELS)
    ]


async def num_ended(models: Sequence[tuple[Asked, Asked]], case: Case, *, first: bool) -> int:
    """Of all models: with drafts, without, and with, or the other way around."""
    chosen = [pair[first != bool(model % 2)] for model, pair in enumerate(models)]
    return sum([await asked.num_ended(case) for asked in chosen])


@pytest.mark.parametrize("part", range(NUM_PARTS))
def test_what_ends_is_valid_whatever_the_schema(part: int) -> None:
    """200 schemas that are not refused x 3 models, half of them with drafts."""
    ended: list[int] = []
    runner, stack = asyncio.Runner(), AsyncExitStack()

    @seed(part)
    @given(schema=SCHEMAS, first=some.booleans())
    @settings(
        max_examples=NUM_SCHEMAS,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    def ask(schema: dict[str, Any], first: bool) -> None:
        try:
            case = case_of(schema)
            piece_compiler().compile(case.grammar)
        except InvalidArgument:
            assume(False)
        ended.append(runner.run(num_ended(models, case, first=first)))

    with runner:
        try:
            models = runner.run(opened(stack))
            ask()
        finally:
            runner.run(stack.aclose())
    assert len(ended) >= NUM_SCHEMAS
    assert sum(ended) > MOST_ENDED / 2, "most answers end"
