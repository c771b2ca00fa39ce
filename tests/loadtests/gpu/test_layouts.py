"""Section 8: slots alone on the CPU, and both layouts over decoders made up in NumPy."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from loadtests.gpu import layouts
from loadtests.gpu.context import Context, Findings, Run
from loadtests.gpu.engines import Generated, Generates
from loadtests.gpu.layouts import PAGED, SLOTS, Open, Sizing, compare, loads, shared_prompts
from loadtests.load.closed_loop import closed_loop
from loadtests.load.engine import Prompt
from service.errors import LoadError
from service.generation.engine import GenerationEngine
from service.generation.sequence import Sequence as Sample
from service.records import RanStep
from tests.fakes.generation import RecordingObserver, engine_on, read, request_of
from tests.fakes.paged import PagedDecoder

LIMIT_S = 110.0  # on a busy machine; rounds are few, so that it takes 5 s on a quiet one
SIZING = Sizing.of(is_tiny=True)


@dataclass
class FakeEngine:
    """The engine over a decoder made up: it generates, and remembers its steps."""

    engine: GenerationEngine
    observer: RecordingObserver
    loop: asyncio.AbstractEventLoop
    samples: list[Sample] = field(default_factory=list)

    @property
    def steps(self) -> list[RanStep]:
        return self.observer.steps

    def generate(self, prompts: Sequence[Prompt], num_rows: int) -> Generated:
        samples: list[Sample] = []

        async def one(prompt: Prompt) -> None:
            now_s = time.monotonic()
            ids, count = prompt.ids, prompt.num_tokens
            request = request_of(ids, max_tokens=count, received_s=now_s, ignore_eos=True)
            async with self.engine.generate(request) as generation:
                await read(generation)
            samples.extend(generation.sequences)

        return Generated(self.loop.run_until_complete(closed_loop(prompts, num_rows, one)), samples)


@contextmanager
def fake_engine(block_size: int, num_bytes: int) -> Iterator[Generates]:
    """An engine whose cache has a byte for each token."""
    loop, stack, observer = asyncio.new_event_loop(), AsyncExitStack(), RecordingObserver()
    decoder = PagedDecoder(
        num_bytes // block_size, block_size, SIZING.in_flight, SIZING.max_context, vocab_size=257
    )
    try:
        opened = engine_on(decoder, observer=observer, max_running=SIZING.in_flight)
        yield FakeEngine(loop.run_until_complete(stack.enter_async_context(opened)), observer, loop)
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()


def context_of(folder: Path) -> Context:
    run = Run(folder, "cpu", is_tiny=True)
    run.work.mkdir(exist_ok=True)
    return Context(run, "8 layouts", time.monotonic() + LIMIT_S)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    """Blocks as long as a sequence may be, which are slots, beside blocks of 4 tokens."""
    opens = {
        SLOTS: partial(fake_engine, SIZING.max_context),
        PAGED: partial(fake_engine, 4),
    }
    return compare(context_of(tmp_path_factory.mktemp("gpu")), opens, SIZING.max_context)


def test_every_load_runs_over_both_layouts(made_up: Findings) -> None:
    assert json.loads(json.dumps(made_up, allow_nan=False)) == made_up
    expected = [(load.name, layout) for load in loads(is_tiny=True) for layout in (SLOTS, PAGED)]
    assert [(row["load"], row["layout"]) for row in made_up["rows"]] == expected
    assert len(made_up["tables"][0]["rows"]) == len(expected)


def test_both_layouts_say_the_same(made_up: Findings) -> None:
    same = [claim for claim in made_up["claims"] if "the same" in claim["claim"]]
    assert [claim["figure"] for claim in same] == [1.0] * 3
    faster = [claim for claim in made_up["claims"] if claim["claim"].endswith("paged over slots")]
    assert len(faster) == 3
    assert {claim["kind"] for claim in made_up["claims"]} == {"goal"}


def test_in_the_memory_of_a_few_slots_more_sequences_run_over_blocks(made_up: Findings) -> None:
    slots, paged = made_up["rows"][-2:]
    assert slots["most_running"] == SIZING.few_slots
    assert paged["most_running"] > SIZING.few_slots
    assert slots["cache_bytes"] == paged["cache_bytes"]


def test_beginnings_are_reused_where_blocks_are_small_enough(made_up: Findings) -> None:
    slots, paged = made_up["rows"][2:4]
    assert slots["reused_tokens"] == 0
    assert paged["reused_tokens"] / paged["num_prompts"] == pytest.approx(
        SIZING.shared_tokens, abs=4
    )
    assert slots["num_tokens"] == paged["num_tokens"]


def test_a_layout_that_cannot_be_opened_is_left_out(tmp_path: Path) -> None:
    def refuses(num_bytes: int) -> AbstractContextManager[Generates]:
        raise LoadError(f"{num_bytes} bytes are too few")

    opens: dict[str, Open] = {SLOTS: partial(fake_engine, SIZING.max_context), PAGED: refuses}
    findings = compare(context_of(tmp_path), opens, SIZING.max_context)
    assert {row["layout"] for row in findings["rows"]} == {SLOTS}
    assert findings["left_out"][0] == "rows alike, paged: 192 bytes are too few"
    assert findings["claims"] == []


def test_rounds_share_beginnings_and_nothing_else() -> None:
    first, second = (shared_prompts(SIZING, number) for number in (0, 1))
    heads = [{tuple(p.ids[: SIZING.shared_tokens]) for p in prompts} for prompts in (first, second)]
    assert heads[0] == heads[1]
    assert len(heads[0]) == SIZING.num_groups
    assert not {tuple(prompt.ids) for prompt in first} & {tuple(prompt.ids) for prompt in second}


def test_on_the_cpu_slots_are_measured_and_blocks_are_left_out(tiny_run: Run) -> None:
    findings = layouts.run(context_of(tiny_run.out))
    assert [row["layout"] for row in findings["rows"]] == [SLOTS] * 3
    assert "no kernel for the CPU" in findings["left_out"][0]
    rows_alike, shared, few = findings["rows"]
    assert SIZING.few_slots < rows_alike["most_running"] <= SIZING.in_flight  # one may end early
    assert shared["reused_tokens"] > 0
    assert few["most_running"] == SIZING.few_slots
