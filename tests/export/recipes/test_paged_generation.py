"""An engine over the blocks of a device says what the same network says over slots on the CPU.

The graph is evaluated by ONNX's reference evaluator with the operator in NumPy, in float32; memory,
bindings, candidates, block copies and recorded steps are the server's own. Unverified on CUDA:
docs/how-to/cuda.md.
"""

import asyncio
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

from export.graphs.candidates import with_candidates
from export.graphs.paged_decoder import trace_paged_decoder
from service.errors import LoadError
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.decoders.paged_decoder import OnnxPagedDecoder
from service.generation.decoders.step_graphs import FIRST_ROWS
from service.runtime.device_memory import DeviceMemory
from service.runtime.session import NO_GRAPH, OnnxSession, SessionOptions
from tests.fakes.generation import Answer, ask_all, engine_on, request_of
from tests.fakes.paged_session import GraphSession
from tests.fakes.tiny_gpt import MAX_TOKENS, random_prompts, tiny_gpt, tiny_graph

NUM_CANDIDATES = 32  # of 257 tokens
MAX_ROWS = 12
BEGINNING = random_prompts((25,), seed=77)[0]
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "top_k": 20, "seed": 1},
    {"temperature": 0.8, "top_p": 0.9, "seed": 2, "logprobs": 3},
    {"temperature": 1.0, "seed": 3},  # any token: whole rows
    {"temperature": 1.1, "min_p": 0.02, "seed": 4},
    {"repetition_penalty": 1.3},
    {"n": 3, "temperature": 0.9, "top_k": 10, "seed": 5},
    {"beam_width": 4, "n": 2},
    {"logit_bias": {7: 2.0}, "min_tokens": 4, "logprobs": 1},
)


@dataclass
class Fetches:
    """A device's memory that counts the whole rows that are read from it."""

    memory: DeviceMemory = field(default_factory=lambda: DeviceMemory("cpu"))
    num_rows: int = 0

    def __post_init__(self) -> None:
        chosen_rows = self.memory.chosen_rows

        def counted(rows: Any, places: np.ndarray) -> np.ndarray:
            self.num_rows += len(places)
            return chosen_rows(rows, places)

        self.memory.chosen_rows = counted  # type: ignore[method-assign]


@cache
def paged_graph(num_candidates: int = NUM_CANDIDATES) -> onnx.ModelProto:
    model = trace_paged_decoder(tiny_gpt(), precision="fp32")
    return with_candidates(model, num_candidates) if num_candidates else model


def paged_decoder(
    session: GraphSession, memory: DeviceMemory | None = None, *, records_steps: bool = False
) -> OnnxPagedDecoder:
    return OnnxPagedDecoder(
        session,
        memory or DeviceMemory("cpu"),
        num_blocks=120,
        block_size=8,
        max_rows=MAX_ROWS,
        max_tokens=MAX_TOKENS,
        records_steps=records_steps,
    )


def slot_decoder() -> OnnxDecoder:
    session = OnnxSession(tiny_graph().SerializeToString(), SessionOptions())
    return OnnxDecoder(session, num_slots=MAX_ROWS, max_tokens=MAX_TOKENS, max_rows=MAX_ROWS)


def requests() -> list[dict[str, Any]]:
    """Two prompts of each way to choose, one of them with the common beginning."""
    lengths = np.random.default_rng(3).integers(1, 40, 2 * len(WAYS)).tolist()
    prompts = random_prompts(lengths, seed=9)
    return [
        {
            "prompt": BEGINNING * (place % 2) + prompt,
            "max_tokens": 6 + place % 9,
            "ignore_eos": True,
            **WAYS[place // 2],
        }
        for place, prompt in enumerate(prompts)
    ]


def tokens_of(answers: list[Answer]) -> list[list[int]]:
    return [[*answer.token_ids] for answer in answers]


@cache
def expected() -> list[list[list[int]]]:
    """The tokens over slots, one request after the other."""

    async def ask() -> list[list[list[int]]]:
        async with engine_on(slot_decoder(), can_reuse_prefixes=False) as engine:
            return [tokens_of(await ask_all(engine, request_of(**each))) for each in requests()]

    return asyncio.run(ask())


async def over_blocks(decoder: OnnxPagedDecoder, **limits: Any) -> list[list[list[int]]]:
    """All at once, and others that come beside them and leave amid their text."""
    async with engine_on(decoder, **limits) as engine:

        async def pass_by(place: int) -> None:
            request = request_of(random_prompts((20,), seed=place)[0], max_tokens=40)
            async with engine.generate(request):
                await asyncio.sleep(0.01 * place)

        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask_all(engine, request_of(**each))) for each in requests()]
            for place in range(6):
                tasks.create_task(pass_by(place))
        assert engine.cache.num_used == 0
        return [tokens_of(task.result()) for task in asked]


@pytest.mark.parametrize(
    "limits",
    [
        {"max_prefill_tokens": 24, "max_draft_tokens": 4},
        {"max_prefill_tokens": 200, "can_reuse_prefixes": False},
    ],
    ids=["drafts and prefixes", "neither"],
)
def test_blocks_say_what_slots_say(limits: dict[str, Any]) -> None:
    """Greedy, sampled, several samples, searches and penalties, with common beginnings."""
    counted = Fetches()
    decoder = paged_decoder(GraphSession(paged_graph()), counted.memory)
    wanted = expected()
    assert asyncio.run(over_blocks(decoder, **limits)) == wanted
    num_tokens = sum(len(tokens) for answers in wanted for tokens in answers)
    assert 0 < counted.num_rows < 3 * num_tokens  # four beams of each search are whole rows


def test_a_graph_without_candidates_says_the_same() -> None:
    decoder = paged_decoder(GraphSession(paged_graph(0)))
    assert asyncio.run(over_blocks(decoder, max_prefill_tokens=60)) == expected()


def test_recorded_steps_say_the_same_and_other_runs_are_not_recorded() -> None:
    """Steps of up to 8 and 16 rows repeat one recording each; prompts and drafts have none."""
    session = GraphSession(paged_graph())
    decoder = paged_decoder(session, records_steps=True)
    assert asyncio.run(over_blocks(decoder, max_prefill_tokens=60)) == expected()
    assert session.recorded.keys() == {NO_GRAPH, FIRST_ROWS, 2 * FIRST_ROWS}
    assert session.recorded[FIRST_ROWS] > 3
    assert session.recorded[2 * FIRST_ROWS] > 3


def test_a_graph_without_bounds_of_attention_is_not_recorded() -> None:
    """As those of earlier exports."""
    model = onnx.ModelProto.FromString(paged_graph().SerializeToString())
    bounds = next(each for each in model.graph.input if each.name == "attention_metadata")
    model.graph.input.remove(bounds)
    session = GraphSession(model)
    with pytest.raises(LoadError, match="cuda_graphs is on, but the graph does not take attention"):
        paged_decoder(session, records_steps=True)
    assert paged_decoder(session).num_blocks > 0


def test_a_failed_run_ends_its_sequences_and_the_next_is_right() -> None:
    session = GraphSession(paged_graph())

    async def ask() -> None:
        async with engine_on(paged_decoder(session)) as engine:
            request = requests()[1]
            session.fails = True
            with pytest.raises(Exception, match="as it was told to"):
                await ask_all(engine, request_of(**request))
            session.fails = False
            assert tokens_of(await ask_all(engine, request_of(**request))) == expected()[1]

    asyncio.run(ask())
