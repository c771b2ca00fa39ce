"""Adapters in one batch beside one adapter, the base alone, and merged models side by side.

    attendant export checkpoints/chatty --name chatty --lora-rank 16
    python -m loadtests.measure adapters --model chatty --rows 8

All rows are greedy and of one length. Adapters are random, of the graph's largest rank in every
product that it adapts. Merged models are the base once more each, as their weights cost the same:
an engine each, on the same processors, with its share of the rows.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
import typer

from loadtests.load.engine import Prompt, random_prompts, run_one, serving, vocab_size_of
from loadtests.measure.generation import GenerativeOptions, Loop
from loadtests.measure.records import CASE, Column, Measure, Turn, Way, by_columns, counted, option
from service.contract.adapter import Adapter, Factors
from service.generation.decoders.adapter_buffers import AdapterShape
from service.serving.generative_model import GenerativeModel

NUM_ADAPTERS = 4
PROMPT_TOKENS = 16
SIZE = 0.01  # of a random adapter's values: small, so that texts go on
MERGED = "merged, side by side"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOptions(GenerativeOptions):
    """The rows that run on a model which was exported for adapters."""

    rows: list[int] = option([5, 16], "Rows per step.", min=1)
    tokens: int = option(32, "Tokens of each output.", min=2)


def random_adapter(shape: AdapterShape, seed: int) -> Adapter:
    """Factors for all products that the graph adapts."""
    generator = np.random.default_rng(seed)

    def values(*sizes: int) -> np.ndarray:
        return (generator.standard_normal(sizes, np.float32) * SIZE).astype(np.float32)

    factors = {
        module: Factors(values(num_in, shape.rank), values(shape.rank, num_out))
        for module, (num_in, num_out) in shape.modules.items()
    }
    return Adapter("bench", factors)


async def generate(models: Sequence[GenerativeModel], prompts: Sequence[Prompt]) -> None:
    """Generate all rows at once, given to the models in turn."""
    rows = (run_one(models[place % len(models)], each) for place, each in enumerate(prompts))
    await asyncio.gather(*rows)


def ways(options: AdapterOptions, stack: ExitStack) -> dict[str, Way]:
    """Ways to run as many rows, at each number of them."""
    loop = Loop(stack)
    opened = partial(serving, max_draft_tokens=0, prefix_reuse=False)
    base, *merged = (
        loop.enter(opened(options.repository, options.model)) for _ in range(NUM_ADAPTERS + 2)
    )
    shape = base.engine.adapters
    if shape is None:
        raise typer.BadParameter(
            f"--model {options.model} takes no adapters: `attendant export --lora-rank 16`"
        )
    adapted = [copy(base) for _ in range(NUM_ADAPTERS)]
    for seed, model in enumerate(adapted):
        model.adapter = random_adapter(shape, seed)
    lengths = (PROMPT_TOKENS, PROMPT_TOKENS), (options.tokens, options.tokens)
    prompts = random_prompts(max(options.rows), 0, *lengths, vocab_size_of(base))

    def timed(models: Sequence[GenerativeModel], num_rows: int) -> Turn:
        started_s = time.perf_counter()
        loop.run(generate(models, prompts[:num_rows]))
        return {"seconds": time.perf_counter() - started_s, "tokens": num_rows * options.tokens}

    models = {
        MERGED: merged,
        "base alone": [base],
        "one adapter": adapted[:1],
        "four adapters and the base": [base, *adapted],
    }
    return {
        f"{counted(count, 'row')}{CASE}{name}": partial(timed, each, count)
        for count in options.rows
        for name, each in models.items()
    }


ADAPTERS = Measure(
    "adapters",
    "Adapters in one batch beside one adapter, the base alone, and merged models side by side",
    "Generation",
    AdapterOptions,
    ways,
    by_columns(
        Column("tokens/s", "tokens/seconds"),
        Column("speed over merged models", "tokens/seconds", over=MERGED),
    ),
)
