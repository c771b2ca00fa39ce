"""Our engine that generates, in process, without gRPC: three measures.

    python -m loadtests.compare models
    attendant export build/compare/models/gpt2 --repository build/bench --name fp32
    python -m loadtests.measure overhead --repository build/bench --model fp32
    python -m loadtests.measure arrivals --repository build/bench --model fp32 --rate 4 --rate 7

`loadtests.compare` measures it beside other engines.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from loadtests.load.engine import Prompt, random_prompts, run_all, run_one, serving, vocab_size_of
from loadtests.measure.records import (
    CASE,
    Column,
    Measure,
    Options,
    Turn,
    Way,
    by_columns,
    option,
)
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.engine import GenerationEngine
from service.generation.sequence import Sequence as Sample
from service.records import RanStep
from service.runtime.binding import Binding
from service.serving.generative_model import GenerativeModel

SAMPLING: dict[str, dict[str, object]] = {
    "greedy": {},
    "temperature": {"temperature": 1.0, "seed": 1},
    "top_k 50, top_p 0.9": {"temperature": 1.0, "top_k": 50, "top_p": 0.9, "seed": 1},
}
STATIC, CONTINUOUS = "static", "continuous"
MAX_ROWS = 32  # in flight, where a capacity is measured
Entered = TypeVar("Entered")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeOptions(Options):
    """A generative model of a repository."""

    repository: Path = option(Path("model_repository"), "Where the exported models are.")
    model: str = option("gpt", "A generative model of the repository.")


class Loop:
    """An event loop that ways run on, one after the other; gone with the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.run = stack.enter_context(asyncio.Runner()).run

    def enter(self, manager: AbstractAsyncContextManager[Entered]) -> Entered:
        """What the manager gives; it ends with the stack."""

        async def begin() -> Entered:
            return await manager.__aenter__()

        async def end() -> None:
            await manager.__aexit__(None, None, None)

        entered = self.run(begin())
        self._stack.callback(lambda: self.run(end()))
        return entered


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadOptions(GenerativeOptions):
    """The rows of a step."""

    rows: int = option(32, "Sequences at once.", min=1)
    tokens: int = option(64, "Tokens of each.", min=4)
    rounds: int = option(3, "Rounds that count.", min=1)


def overhead_ways(options: OverheadOptions, stack: ExitStack) -> dict[str, Way]:
    """A way for each kind of sampling."""
    loop, steps = Loop(stack), list[RanStep]()
    model = loop.enter(serving(options.repository, options.model, steps))
    lengths = (32, 64), (options.tokens, options.tokens)
    requests = random_prompts(options.rows, 5, *lengths, vocab_size_of(model))
    times_s = _time_calls(model)

    def decoded(params: dict[str, object]) -> Turn:
        """Medians per step: from one call to the next, and within the call."""
        steps.clear()
        times_s.clear()
        loop.run(run_all(model, requests, options.rows, **params))
        calls = np.array(times_s)
        is_full = [step.phase == "decode" and step.num_rows == options.rows for step in steps]
        places = np.flatnonzero(is_full[:-1])[1:-1]  # not those beside others
        steps_s = calls[places + 1, 0] - calls[places, 0]
        runs_s = calls[places, 1] - calls[places, 0]
        outside = (steps_s - runs_s) / steps_s
        return {
            "step_s": float(np.median(steps_s)),
            "run_s": float(np.median(runs_s)),
            "outside": float(np.median(outside)),
            "outside_p90": float(np.percentile(outside, 90)),
        }

    return {name: partial(decoded, params) for name, params in SAMPLING.items()}


def _time_calls(model: GenerativeModel) -> list[tuple[float, float]]:
    """A list that gets the beginning and end, in seconds, of each call of the decoder."""
    times_s: list[tuple[float, float]] = []

    class Timed(Binding):
        def run(self) -> None:
            started_s = time.perf_counter()
            super().run()
            times_s.append((started_s, time.perf_counter()))

    assert isinstance(model.engine, GenerationEngine)
    decoder = model.engine._decoder  # noqa: SLF001 - ours to look into
    assert isinstance(decoder, OnnxDecoder)
    session = decoder._session  # noqa: SLF001
    session.bind = lambda *arrays: Timed(session._session, "cpu", *arrays)  # type: ignore[method-assign] # noqa: SLF001
    return times_s


OVERHEAD = Measure(
    "overhead",
    "The share of a decoding step that is not ONNX Runtime's call, metrics included",
    "The generation engine",
    OverheadOptions,
    overhead_ways,
    by_columns(
        Column("a step", "step_s", "ms"),
        Column("ONNX Runtime's call", "run_s", "ms"),
        Column(
            "outside",
            "outside",
            "%",
            goals=dict.fromkeys(SAMPLING, 3.0),
            at_most=True,
        ),
        Column("outside, p90 of steps", "outside_p90", "%"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyOptions(GenerativeOptions):
    """The load."""

    load: float = option(0.7, "Share of capacity.", min=0.01, max=1.0)
    count: int = option(96, "Requests.", min=8)
    rounds: int = option(1, "Rounds that count.", min=1)


def latency_ways(options: LatencyOptions, stack: ExitStack) -> dict[str, Way]:
    """One way: arrivals at a share of the capacity, which is measured before each turn."""
    loop, steps = Loop(stack), list[RanStep]()
    model = loop.enter(serving(options.repository, options.model, steps, prefix_reuse=False))
    requests = random_prompts(options.count, 7, (16, 128), (16, 64), vocab_size_of(model))

    async def arrived() -> Turn:
        capacity = len(requests) / await run_all(model, requests, MAX_ROWS)
        steps.clear()
        samples = await at_once(model, requests, due(options.load * capacity, options.count))
        first_s = [sample.timings.time_to_first_token_s for sample in samples]
        between_s = [value for step in steps for value in step.inter_token_s]
        return {
            "capacity": capacity,
            **{f"first_p{mark}_s": float(np.percentile(first_s, mark)) for mark in (50, 99)},
            **{f"between_p{mark}_s": float(np.percentile(between_s, mark)) for mark in (50, 99)},
        }

    return {f"{options.load:.0%} of the capacity": lambda: loop.run(arrived())}


LATENCY = Measure(
    "latency",
    "Time to the first token and between tokens under Poisson arrivals",
    "The generation engine",
    LatencyOptions,
    latency_ways,
    by_columns(
        Column("capacity", "capacity", "requests/s"),
        Column("first token, p50", "first_p50_s", "ms"),
        Column("first token, p99", "first_p99_s", "ms"),
        Column("between tokens, p50", "between_p50_s", "ms"),
        Column("between tokens, p99", "between_p99_s", "ms"),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalOptions(GenerativeOptions):
    """Rates, and the groups of static batching.

    Outputs of 8 to 200 tokens, as many short as long ones by logarithm; prompts of 16 to 128.
    """

    rate: list[float] = option([1.0, 2.0, 4.0], "Requests per second.")
    seconds: float = option(15.0, "Of arrivals at each rate.", min=1)
    group: int = option(MAX_ROWS, "Requests of a static group.", min=1)
    wait_ms: float = option(100.0, "For a static group to fill.", min=0)
    rounds: int = option(1, "Rounds that count.", min=1)
    warm_up: int = option(0, "Rounds before them.", min=0)


def arrival_ways(options: ArrivalOptions, stack: ExitStack) -> dict[str, Way]:
    """Continuous and static batching at each rate.

    Static: a group starts when the last one is done and it is full, or its first request has waited
    long enough; each request is answered as soon as its own tokens are done.
    """
    loop = Loop(stack)
    model = loop.enter(serving(options.repository, options.model, prefix_reuse=False))
    vocab_size = vocab_size_of(model)
    warm_up = mixed_prompts(options.group, 1, vocab_size)  # touches all memory there is
    loop.run(run_all(model, warm_up, options.group))
    in_groups = partial(grouped, options.group, options.wait_ms / 1e3)

    async def arrived(way: str, rate: float, requests: Sequence[Prompt]) -> Turn:
        """Quantiles of a request's time from its arrival to its end, over its tokens."""
        dues_s = due(rate, len(requests))
        answer = in_groups if way == STATIC else at_once
        samples = await answer(model, requests, dues_s)
        per_token_s = [
            (sample.timings.finished_s - due_s) / prompt.num_tokens
            for sample, due_s, prompt in zip(samples, dues_s, requests, strict=True)
        ]
        return {f"p{mark}_s": float(np.percentile(per_token_s, mark)) for mark in (50, 95)}

    def taken(way: str, rate: float) -> Turn:
        requests = mixed_prompts(max(1, int(rate * options.seconds)), 7, vocab_size)
        return loop.run(arrived(way, rate, requests))

    return {
        f"{rate:g}/s{CASE}{way}": partial(taken, way, rate)
        for rate in options.rate
        for way in (STATIC, CONTINUOUS)
    }


ARRIVALS = Measure(
    "arrivals",
    "Continuous and static batching under Poisson arrivals: a request's time per token by rate",
    "The generation engine",
    ArrivalOptions,
    arrival_ways,
    by_columns(
        Column("p50 per token", "p50_s", "ms"),
        Column("p95 per token", "p95_s", "ms"),
        Column("speed at p95 over static", lambda turn: 1 / turn["p95_s"], over=STATIC),
    ),
)


def mixed_prompts(count: int, seed: int, vocab_size: int) -> list[Prompt]:
    """Outputs log-uniform from 8 to 200 tokens."""
    generator = np.random.default_rng(seed)
    outputs = np.exp(generator.uniform(np.log(8), np.log(201), count)).astype(int)
    return [
        Prompt(prompt.ids, int(num_tokens))
        for prompt, num_tokens in zip(
            random_prompts(count, seed, (16, 128), (1, 1), vocab_size), outputs, strict=True
        )
    ]


async def grouped(
    group: int,
    wait_s: float,
    model: GenerativeModel,
    requests: Sequence[Prompt],
    dues_s: Sequence[float],
) -> list[Sample]:
    """A group has those requests that have arrived when it starts."""
    samples: list[Sample] = []
    first = 0
    while first < len(requests):
        end = min(first + group, len(requests))
        starts_s = min(dues_s[end - 1], dues_s[first] + wait_s)
        await asyncio.sleep(max(0.0, starts_s - time.monotonic()))
        now_s = time.monotonic()
        arrived = [i for i in range(first, end) if i == first or dues_s[i] <= now_s]
        samples += await asyncio.gather(*(run_one(model, requests[i]) for i in arrived))
        first += len(arrived)
    return samples


def due(rate: float, count: int) -> list[float]:
    """Times of Poisson arrivals from now on, of the monotonic clock."""
    gaps_s = np.random.default_rng(3).exponential(1 / rate, count)
    return list((time.monotonic() + np.cumsum(gaps_s)).tolist())


async def at_once(
    model: GenerativeModel, requests: Sequence[Prompt], dues_s: Sequence[float]
) -> list[Sample]:
    """Each request is generated from its arrival on."""

    async def answer(prompt: Prompt, due_s: float) -> Sample:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        return await run_one(model, prompt)

    return list(await asyncio.gather(*map(answer, requests, dues_s)))
