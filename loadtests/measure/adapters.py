"""Adapters in one batch beside one adapter, the base alone, and merged models side by side.

    attendant export checkpoints/chatty --name chatty --lora-rank 16
    python -m loadtests.measure adapters --graph model_repository/chatty/1/model.onnx --rows 8

All sides are engines with the server's decoder and greedy rows of one length, in turns. Adapters
are random, of the graph's largest rank in every product that it adapts. Merged models are copies of
the base, as their weights cost the same: an engine each, on the same processors, with its share of
the rows. In one turn of each round adapters are loaded, used by one row and forgotten, `--changes`
times while rows of others run, and the process's memory is read before and after.
"""

import asyncio
import gc
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import typer

from loadtests.load.server import resident_mib
from loadtests.load.turns import spread
from loadtests.measure.records import (
    CASE,
    Column,
    Measure,
    Options,
    Turn,
    Way,
    by_columns,
    counted,
    option,
)
from loadtests.measure.steps import open_decoder as open_plain
from service.calls.sampling import Sampling
from service.contract.adapter import Adapter, Factors
from service.contract.queue_policies import QueuePolicy
from service.errors import LoadError
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.decoders.opening import CacheLimits, open_decoder
from service.generation.engine import GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.sequence import GenerationRequest, Vocabulary
from service.generation.steps.scheduler import SchedulerLimits
from service.runtime.cpus import available_cpus
from service.runtime.session import SessionOptions

NUM_ADAPTERS = 4
PROMPT_TOKENS = 16
CHANGE_TOKENS = 2  # of rows beside an adapter that comes and goes
CACHE_BYTES = 2**31
SIZE = 0.01  # of a random adapter's values: small, so that texts go on
MERGED = "merged, side by side"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOptions(Options):
    """A graph, and the rows that run on it."""

    graph: Path | None = option(None, "A decoder's graph, with one for adapters beside it.")
    rows: list[int] = option([5, 16], "Rows per step.", min=1)
    tokens: int = option(32, "Tokens of each output.", min=2)
    changes: int = option(50, "Adapters that come and go.", min=1)


class Engine:
    """One engine over a graph; `mebibytes` is what it added to the process's memory."""

    @classmethod
    async def opened(cls, graph: Path, most_rows: int, num_tokens: int, *, takes: bool) -> Self:
        """Over a graph alone, or beside the one that takes adapters."""
        before, room = memory(), PROMPT_TOKENS + num_tokens
        if takes:
            options = SessionOptions(num_threads=available_cpus())
            decoder = open_decoder(graph, options, CacheLimits(room, most_rows, CACHE_BYTES))
        else:
            decoder = open_plain(graph, most_rows, room)
        return cls(decoder, most_rows, num_tokens, before)

    def __init__(
        self, decoder: OnnxDecoder, most_rows: int, num_tokens: int, before: float
    ) -> None:
        self.decoder = decoder
        self._num_tokens = num_tokens
        vocabulary = Vocabulary([b"a"] * self.decoder.vocab_size, ())
        self._engine = GenerationEngine(
            "bench",
            self.decoder,
            vocabulary,
            SchedulerLimits(max_running=most_rows, can_reuse_prefixes=False),
            QueueLimits(10_000, 10_000_000, QueuePolicy(max_wait_s=600.0)),
            [],
        )
        self.mebibytes = memory() - before

    def random_adapter(self, seed: int) -> Adapter:
        if self.decoder.adapters is None:
            raise LoadError("the graph takes no adapters: `attendant export --lora-rank` one")
        generator = np.random.default_rng(seed)
        shape = self.decoder.adapters.shape

        def values(*sizes: int) -> np.ndarray:
            return (generator.standard_normal(sizes, np.float32) * SIZE).astype(np.float32)

        factors = {
            module: Factors(values(num_in, shape.rank), values(shape.rank, num_out))
            for module, (num_in, num_out) in shape.modules.items()
        }
        return Adapter("bench", factors)

    async def generate(
        self, adapters: Sequence[Adapter | None], num_tokens: int | None = None
    ) -> None:
        """A row of all its tokens for each."""
        count = num_tokens or self._num_tokens
        rows = enumerate(adapters)
        await asyncio.gather(*(self._row(index, adapter, count) for index, adapter in rows))

    async def _row(self, index: int, adapter: Adapter | None, num_tokens: int) -> None:
        prompt = np.random.default_rng(index).integers(1, self.decoder.vocab_size, PROMPT_TOKENS)
        request = GenerationRequest(
            prompt.astype(np.int32),
            Sampling(temperature=0.0, ignore_eos=True),
            num_tokens,
            time.monotonic(),
            namespace=str(adapter.number) if adapter else "",
            adapter=adapter,
        )
        async with self._engine.generate(request) as generation:
            async for _ in generation:
                pass

    def close(self) -> None:
        self._engine.close(10.0)


def memory() -> float:
    """The process's, in MiB."""
    gc.collect()
    return resident_mib(os.getpid())


async def side_by_side(engines: Sequence[Engine], num_rows: int) -> None:
    """Rows shared out among engines of merged models."""
    shares = [len(range(index, num_rows, len(engines))) for index in range(len(engines))]
    pairs = zip(engines, shares, strict=True)
    await asyncio.gather(*(engine.generate([None] * share) for engine, share in pairs))


async def come_and_go(engine: Engine, kept: Sequence[Adapter], changes: int) -> None:
    """Adapters that are new for one row each, beside rows of the others."""
    for seed in range(changes):
        new = engine.random_adapter(1_000 + seed)
        await engine.generate([*kept, None, new], CHANGE_TOKENS)


def ways(options: AdapterOptions, stack: ExitStack) -> dict[str, Way]:
    """Ways at each number of rows, and what adapters add to memory."""
    if options.graph is None:
        raise typer.BadParameter(
            "--graph is missing: a decoder's graph that `attendant export --lora-rank 16` wrote"
        )
    runner = stack.enter_context(asyncio.Runner())
    engine, *merged = (
        runner.run(Engine.opened(options.graph, max(options.rows), options.tokens, takes=takes))
        for takes in (True, *[False] * (NUM_ADAPTERS + 1))
    )
    for each in (engine, *merged):
        stack.callback(each.close)
    adapters = [engine.random_adapter(seed) for seed in range(NUM_ADAPTERS)]
    mixed: list[Adapter | None] = [None, *adapters]

    def timed(work: Callable[[], Coroutine[Any, Any, None]], num_rows: int) -> Turn:
        started_s = time.perf_counter()
        runner.run(work())
        return {"seconds": time.perf_counter() - started_s, "tokens": num_rows * options.tokens}

    def changed() -> Turn:
        before = memory()
        runner.run(come_and_go(engine, adapters[:2], options.changes))
        return {"mib": memory() - before}

    found: dict[str, Way] = {}
    for num_rows in options.rows:
        each_own = [mixed[index % len(mixed)] for index in range(num_rows)]
        works = {
            MERGED: partial(side_by_side, merged, num_rows),
            "base alone": partial(engine.generate, [None] * num_rows),
            "one adapter": partial(engine.generate, adapters[:1] * num_rows),
            "four adapters and the base": partial(engine.generate, each_own),
        }
        for name, work in works.items():
            found[f"{counted(num_rows, 'row')}{CASE}{name}"] = partial(timed, work, num_rows)
    of_one = sum(each.num_bytes for each in adapters) / len(adapters) / 2**20
    of_merged = spread([each.mebibytes for each in merged]).median
    return found | {
        "base, with both graphs": lambda: {"mib": engine.mebibytes},
        "an adapter": lambda: {"mib": of_one},
        "a merged model": lambda: {"mib": of_merged},
        f"{options.changes} adapters that came and went": changed,
    }


ADAPTERS = Measure(
    "adapters",
    "Adapters in one batch beside one adapter, the base alone, and merged models side by side",
    "Adapters",
    AdapterOptions,
    ways,
    by_columns(
        Column("tokens/s", "tokens/seconds"),
        Column("speed over merged models", "tokens/seconds", over=MERGED),
        Column("memory", "mib", "MiB"),
    ),
)
