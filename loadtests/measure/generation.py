"""Our engine that generates, in process, without gRPC: what it adds to ONNX Runtime's call.

    python -m loadtests.compare models
    attendant export build/compare/models/gpt2 --repository build/bench --name fp32
    python -m loadtests.measure overhead --repository build/bench --model fp32

`loadtests.compare` measures it beside other engines.
"""

import asyncio
import time
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from loadtests.load.engine import random_prompts, run_all, serving, vocab_size_of
from loadtests.measure.records import Column, Measure, Options, Turn, Way, by_columns, option
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.engine import GenerationEngine
from service.records import RanStep
from service.runtime.binding import Binding
from service.serving.generative_model import GenerativeModel

SAMPLING: dict[str, dict[str, object]] = {
    "greedy": {},
    "temperature": {"temperature": 1.0, "seed": 1},
    "top_k 50, top_p 0.9": {"temperature": 1.0, "top_k": 50, "top_p": 0.9, "seed": 1},
}
Entered = TypeVar("Entered")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeOptions(Options):
    """A generative model of a repository, which is opened in this process."""

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
        if not places.size:
            raise ValueError(
                f"in no step all {options.rows} rows were decoded together, as the machine is busy "
                f"or --tokens {options.tokens} are few: ask for more"
            )
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
    "Generation",
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
