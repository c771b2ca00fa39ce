"""Our engine in this process, driven by functions that return when the work is done.

The model is loaded from a repository as the server loads it, and generates on an event loop that
runs only while there is work.
"""

import asyncio
import statistics
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from loadtests.load.closed_loop import closed_loop
from loadtests.load.engine import Prompt, run_all, run_one, serving
from service.generation.sequence import Sequence as Sample
from service.records import RanStep
from service.serving.generative_model import GenerativeModel

Result = TypeVar("Result")
NUM_IDS = 256  # prompts are of ids that every vocabulary has


@dataclass(frozen=True, slots=True)
class Generated:
    """What became of prompts that were run together."""

    seconds: float
    samples: list[Sample]  # in the order in which they ended


class Generates(Protocol):
    """A way to run prompts, which remembers the steps that ran."""

    @property
    def steps(self) -> list[RanStep]: ...

    def generate(self, prompts: Sequence[Prompt], num_rows: int) -> Generated:
        """Run all prompts, `num_rows` of them in flight, to their last tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded model, and the steps that it ran."""

    model: GenerativeModel
    steps: list[RanStep]
    loop: asyncio.AbstractEventLoop

    def run(self, prompts: Sequence[Prompt], num_rows: int) -> float:
        """Seconds that all prompts take, `num_rows` of them in flight, to their last tokens."""
        return self.wait(run_all(self.model, prompts, num_rows))

    def generate(self, prompts: Sequence[Prompt], num_rows: int) -> Generated:
        samples: list[Sample] = []

        async def one(prompt: Prompt) -> None:
            samples.append(await run_one(self.model, prompt))

        return Generated(self.wait(closed_loop(prompts, num_rows, one)), samples)

    def first_token_s(self, prompt: Prompt) -> float:
        """The time to the first token of a prompt by itself."""
        return self.one(prompt).timings.time_to_first_token_s

    def one(self, prompt: Prompt) -> Sample:
        return self.wait(run_one(self.model, prompt))

    def wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.loop.run_until_complete(work)


@contextmanager
def engine(repository: Path, name: str, **settings: object) -> Iterator[Engine]:
    """A generative model of a repository; its memory is free again after the block.

    Raises `LoadError`.
    """
    loop, stack, steps = asyncio.new_event_loop(), AsyncExitStack(), list[RanStep]()
    try:
        opened = serving(repository, name, steps, **{"prefix_reuse": False, **settings})
        model = loop.run_until_complete(stack.enter_async_context(opened))
        yield Engine(model, steps, loop)
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()


def prompts_of(count: int, num_tokens: int, num_outputs: int, number: int = 0) -> list[Prompt]:
    """Prompts of random ids, all of one length; others for another number."""
    generator = np.random.default_rng(number + 1)
    return [
        Prompt(generator.integers(1, NUM_IDS, num_tokens).tolist(), num_outputs)
        for _ in range(count)
    ]


def full_steps(steps: Sequence[RanStep], num_rows: int) -> list[RanStep]:
    """The decoding steps that had all rows, but for the first, which waited for a prompt."""
    return [step for step in steps if step.phase == "decode" and step.num_rows == num_rows][1:]


def step_intervals_s(steps: Sequence[RanStep]) -> list[float]:
    """The time from each of these decoding steps to the one before it."""
    return [statistics.median(step.inter_token_s) for step in steps if step.inter_token_s]


def host_share(steps: Sequence[RanStep]) -> float:
    """The share of decoding steps that is not the decoder's run: the median over the steps.

    A run is from the filling of its inputs to its logits, or candidates, on the host.
    """
    return statistics.median(
        1 - step.run_s / statistics.median(step.inter_token_s)
        for step in steps
        if step.inter_token_s
    )
