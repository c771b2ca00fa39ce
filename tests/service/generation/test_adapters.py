"""Adapters on one engine: rows of different ones share steps, and none sees another's."""

import asyncio
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from service.contract.adapter import Adapter
from service.errors import LoadError
from service.generation.adapter_places import AdapterPlaces
from service.generation.decoders.adapter_buffers import AdapterShape
from service.generation.engine import GenerationEngine
from tests.fakes.generation import (
    ask_all,
    engine_on,
    now,
    step_to,
    until,
    until_idle,
    within_patience,
)
from tests.fakes.sessions import ADAPTED, FakeDecoder, greedy_ids, shifting

BASE: Adapter | None = None


async def ask_with(
    engine: GenerationEngine, adapter: Adapter | None, prompt: str, **params: Any
) -> list[list[int]]:
    request = replace(
        now(prompt, **params),
        adapter=adapter,
        namespace=str(adapter.number) if adapter else "",
    )
    return [answer.token_ids for answer in await ask_all(engine, request)]


def expected(prompt: str, shift: int, num_tokens: int = 8) -> list[int]:
    return greedy_ids(list(prompt.encode()), num_tokens, shift)


async def test_rows_of_different_adapters_share_steps() -> None:
    """Four adapters and the base, 16 sequences at once: each says what it says alone."""
    adapters = [BASE, *(shifting(shift) for shift in (1, 2, 3, 4))]
    decoder = FakeDecoder(num_slots=16, num_places=4)
    decoder.hold()
    async with engine_on(decoder) as engine:
        prompts = [f"prompt {index}" for index in range(16)]
        tasks = [
            asyncio.create_task(ask_with(engine, adapters[index % 5], prompt))
            for index, prompt in enumerate(prompts)
        ]
        await asyncio.sleep(0)
        decoder.release()
        answers = await asyncio.gather(*tasks)
    for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        assert answer == [expected(prompt, index % 5)]
    assert max(len(set(call.places)) for call in decoder.calls) == 5


async def test_runs_without_an_adapter_are_the_plain_graph_s() -> None:
    decoder = FakeDecoder(num_places=2)
    async with engine_on(decoder) as engine:
        await ask_with(engine, shifting(1), "one")
        await until_idle(engine)
        num_calls = len(decoder.calls)
        await ask_with(engine, BASE, "two")
    assert all(call.places for call in decoder.calls[:num_calls])
    assert not any(call.places for call in decoder.calls[num_calls:])


async def test_a_prefix_is_reused_with_the_same_adapter_only() -> None:
    prompt = "a prompt that is long enough to be kept"
    one, other = shifting(1), shifting(2)
    decoder = FakeDecoder(num_places=2)
    async with engine_on(decoder) as engine:
        for adapter, shift in ((one, 1), (other, 2), (BASE, 0), (one, 1), (BASE, 0)):
            assert await ask_with(engine, adapter, prompt) == [expected(prompt, shift)]
            await until_idle(engine)
    lengths = [len(call.rows[0]) for call in decoder.calls if len(call.rows[0]) > 1]
    assert lengths == [len(prompt)] * 3


async def test_an_adapter_waits_while_every_place_is_in_use() -> None:
    """One place: the second adapter begins when the first one's sequence has ended."""
    decoder = FakeDecoder(num_places=1)
    decoder.hold()
    async with engine_on(decoder) as engine:
        first = asyncio.create_task(ask_with(engine, shifting(1), "first"))
        await until(lambda: len(decoder.calls) == 1)
        second = asyncio.create_task(ask_with(engine, shifting(2), "second"))
        base = asyncio.create_task(ask_with(engine, BASE, "base"))
        await until(lambda: engine.num_waiting == 2)
        await step_to(decoder, 4)
        assert {place for call in decoder.calls for place in call.places} == {0, 1}
        assert engine.num_waiting == 1
        decoder.release()
        answers = await within_patience(asyncio.gather(first, second, base))
    assert list(answers) == [
        [expected("first", 1)],
        [expected("second", 2)],
        [expected("base", 0)],
    ]


async def test_an_adapter_is_not_kept_waiting_by_others_that_keep_coming() -> None:
    """Requests for the resident adapter come all the time; the waiting one takes its turn."""
    resident, late = shifting(1), shifting(2)
    decoder = FakeDecoder(num_places=1)
    async with engine_on(decoder) as engine:
        running = [asyncio.create_task(ask_with(engine, resident, f"r{n}")) for n in range(4)]
        await until(lambda: engine.num_running > 0 or running[0].done())  # all may be
        waiting = asyncio.create_task(ask_with(engine, late, "late"))
        num_before = 0
        while not waiting.done():
            done, _ = await asyncio.wait([*running, waiting], return_when=asyncio.FIRST_COMPLETED)
            num_before += len(done)
            running = [task for task in running if not task.done()]
            running.append(asyncio.create_task(ask_with(engine, resident, "more")))
            assert num_before < 100, "it never had its turn"
        assert await waiting == [expected("late", 2)]
        await asyncio.gather(*running)


@pytest.mark.parametrize(
    "params", [{"n": 3, "temperature": 1.0, "seed": 7}, {"beam_width": 2}, {"stop": ("q",)}]
)
async def test_samples_beams_and_stops_have_their_adapter(params: dict[str, Any]) -> None:
    """Two adapters at once, and each answers as an engine of its own does."""
    adapters = [shifting(1), shifting(2)]
    alone = []
    for adapter in adapters:
        async with engine_on(FakeDecoder(num_places=1)) as engine:
            alone.append(await ask_with(engine, adapter, "prompt", **params))
    async with engine_on(FakeDecoder(num_places=2)) as engine:
        tasks = [ask_with(engine, adapter, "prompt", **params) for adapter in adapters]
        assert await asyncio.gather(*tasks) == alone


def test_no_place_changes_under_a_running_sequence() -> None:
    """20,000 steps of random arrivals and ends over 6 adapters and 3 places."""
    chance = random.Random(0)  # noqa: S311 - a simulation
    adapters = [shifting(index) for index in range(6)]
    written: dict[int, Adapter] = {}

    def write(place: int, adapter: Adapter) -> None:
        assert not any(places.place_of(each) == place for each in running), "it is in use"
        written[place] = adapter

    places = AdapterPlaces(3, write)
    running: list[Adapter] = []
    waiting: list[Adapter] = []
    for _ in range(20_000):
        if len(waiting) < 20:
            waiting.append(chance.choice(adapters))
        running = [each for each in running if chance.random() < 0.9]
        places.begin(running)
        for adapter in list(waiting):
            if len(running) < 8 and places.claim(adapter):
                waiting.remove(adapter)
                running.append(adapter)
        for adapter in running:
            assert written[places.place_of(adapter)] is adapter
        assert len({each.number for each in running}) <= 3
    assert places.num_writes > 100


def claimed(places: AdapterPlaces, adapters: Iterable[Adapter]) -> list[bool]:
    return [places.claim(adapter) for adapter in adapters]


def test_the_place_that_was_used_longest_ago_is_given_up() -> None:
    one, two, three = (shifting(shift) for shift in (1, 2, 3))
    written: list[tuple[int, Adapter]] = []
    places = AdapterPlaces(2, lambda place, adapter: written.append((place, adapter)))
    for adapter in (one, two, one, three, two):
        places.begin([])
        assert places.claim(adapter)
    assert written == [(1, one), (2, two), (2, three), (1, two)]
    places.begin([two])
    assert claimed(places, (one, three, two, one)) == [True, False, True, False]
    assert repr(places) == "<AdapterPlaces 2 of 2 taken>"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (AdapterShape(2, 1, {"layers.1.attention.value": (1, 1)}), "adapters for value: export"),
        (AdapterShape(2, 1, {ADAPTED: (2, 1)}), "takes 1 values and gives 1, that of 'writer' 2"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(shape: AdapterShape, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        shape.check(shifting(1))
