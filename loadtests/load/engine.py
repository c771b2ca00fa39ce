"""A model and its engine in this process, without gRPC; and prompts for one that generates."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from loadtests.load.closed_loop import closed_loop
from service.calls.sampling_values import sampling_of
from service.contract.files import ModelSource
from service.errors import LoadError
from service.generation.sequence import Sequence as Sample
from service.observe.observers import Observers
from service.records import Observer, RanStep
from service.repository.loading import Openers, load_model, start_model
from service.serving.generative_model import GenerativeModel
from service.serving.model import Caller, Host, ServedModel
from service.settings import Settings

KV_CACHE_BYTES = 4 * 2**30
Served = TypeVar("Served", bound=ServedModel)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to continue, and the number of tokens to generate."""

    ids: list[int]
    num_tokens: int


def random_prompts(
    count: int, seed: int, inputs: tuple[int, int], outputs: tuple[int, int], vocab_size: int
) -> list[Prompt]:
    """Prompts of random tokens; both bounds of lengths are included."""
    generator = np.random.default_rng(seed)
    return [
        Prompt(
            generator.integers(
                1, vocab_size, generator.integers(inputs[0], inputs[1] + 1)
            ).tolist(),
            int(generator.integers(outputs[0], outputs[1] + 1)),
        )
        for _ in range(count)
    ]


def vocab_size_of(model: GenerativeModel) -> int:
    """The number of tokens that the model's tokenizer has."""
    return len(model.tokenizer.token_bytes)


@asynccontextmanager
async def serving(
    repository: Path, name: str, observed: list[RanStep] | None = None, **settings: object
) -> AsyncIterator[GenerativeModel]:
    """A generative model of the repository with its engine, in this process."""
    chosen = {"kv_cache_bytes": KV_CACHE_BYTES, **settings}
    async with serving_model(repository, name, GenerativeModel, observed, **chosen) as model:
        yield model


@asynccontextmanager
async def serving_model(
    repository: Path,
    name: str,
    kind: type[Served],
    observed: list[RanStep] | None = None,
    **settings: object,
) -> AsyncIterator[Served]:
    """A model of this kind, or `LoadError`."""
    # A measurement bounds its queue by itself; a refusal would end it.
    values = {"max_queue_s": 0.0, **settings}
    chosen = Settings(model_repository=repository, **values)  # type: ignore[arg-type]
    version = load_model(ModelSource.of(repository, name), chosen, Openers()).versions[-1]
    with ThreadPoolExecutor(1) as executor:
        observers = Observers() if observed is None else Observers(others=(_Steps(observed),))
        model = start_model(version, Host(chosen, observers, executor), lambda: None)
        if not isinstance(model, kind):
            raise LoadError(f"{name} is no {kind.__name__}")
        try:
            yield model
        finally:
            await asyncio.to_thread(model.close, 10.0)
            del model
            gc.collect()  # an engine and its thread know each other; its cache is large


class _Steps(Observer):
    """Keeps the steps that ran."""

    def __init__(self, steps: list[RanStep]) -> None:
        self._steps = steps

    def step_ran(self, step: RanStep) -> None:
        self._steps.append(step)


async def run_one(model: GenerativeModel, prompt: Prompt, **params: object) -> Sample:
    """Generate, and return the sequence with its timings."""
    sampling_params = sampling_of(
        {"temperature": 0.0, "max_tokens": prompt.num_tokens, "ignore_eos": True, **params}
    )
    started_s = time.monotonic()
    async with model.generate(prompt.ids, sampling_params, Caller(started_s)) as generation:
        async for _ in generation:
            pass
    return generation.sequences[0]


async def run_all(
    model: GenerativeModel, prompts: Sequence[Prompt], concurrency: int, **params: object
) -> float:
    """Seconds that all prompts take, `concurrency` of them in flight."""
    return await closed_loop(prompts, concurrency, lambda prompt: run_one(model, prompt, **params))
