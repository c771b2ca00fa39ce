"""Tokens per second of decoders: our engine beside transformers' `generate` with a static cache.

A turn takes prompts of one length to outputs of one length, all rows at once: prompts included on
both sides. The step, whose traffic of memory is known, is the time between two tokens of a row.
transformers compiles a step by itself where its cache is static and on a GPU.
docs/how-to/cuda.md says what was verified on CUDA.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loadtests.compare.devices.counts import cache_bytes, step_bytes
from loadtests.compare.devices.goals import Goal, with_goals
from loadtests.compare.devices.options import ShapeOptions
from loadtests.compare.devices.shapes import config_of, timed_graphs
from loadtests.compare.worker import Run, Work
from loadtests.measure.records import (
    Column,
    Figure,
    Measure,
    Rounds,
    Turn,
    Way,
    by_columns,
    counted,
)

# Settings of the server for each of our ways.
OURS: dict[str, dict[str, object]] = {
    "ours, paged": {"cache_layout": "paged"},
    "ours, paged, CUDA graphs": {"cache_layout": "paged", "cuda_graphs": True},
    "ours, slots": {"cache_layout": "slots"},
}
STATIC, COMPILED = "transformers, static cache", "transformers, compiled, static cache"
CACHE_BYTES = 24 * 2**30  # of each way: 128 rows of GPT-2 XL need 20
NUM_IDS = 256  # prompts are of ids that every vocabulary has


@dataclass(frozen=True, slots=True)
class Sizing:
    """The loads of one mode of the check."""

    num_rows: tuple[int, ...]  # in flight, the most important first
    prompt_tokens: int
    output_tokens: int
    max_context: int


TINY, FULL = Sizing((1, 4), 8, 24, 64), Sizing((1, 32, 8, 128), 128, 64, 520)


def prompts_of(count: int, num_tokens: int, num_outputs: int, number: int = 0) -> Work:
    """Prompts of random ids, all of one length and in flight; others for another number."""
    generator = np.random.default_rng(number + 1)
    ids = generator.integers(1, NUM_IDS, (count, num_tokens))
    return Work(ids.tolist(), count, [num_outputs] * count)


def value_bytes(device: str) -> int:
    """The size of a weight, and of a number in the cache."""
    return 4 if device == "cpu" else 2


def ways(options: ShapeOptions, stack: ExitStack) -> dict[str, Way]:
    """Each number of rows in flight with each layout of the cache, and with the peer."""
    options.version(is_text=True)
    sizing, config = TINY if options.is_tiny else FULL, config_of(options.shape)
    num_bytes, longest = value_bytes(options.device), min(sizing.max_context, config.max_positions)
    settings = {
        "max_running_sequences": max(sizing.num_rows),
        "max_context_tokens": longest,
        "kv_cache_bytes": min(
            cache_bytes(config, max(sizing.num_rows), longest, num_bytes), CACHE_BYTES
        ),
    }
    layouts = [layout or "slots" for _, layout in timed_graphs(options.shape, options.device)]
    engines: dict[str, Run] = {
        way: options.ours(stack, task="generate", settings=settings | own)
        for way, own in OURS.items()
        if own["cache_layout"] in layouts
    }
    if options.peer != "none":
        is_compiled = options.peer == "compiled"
        how: dict[str, Any] = {"cache_implementation": "static"}
        how["disable_compile"] = not (is_compiled and options.device == "cuda")
        peer = COMPILED if is_compiled else STATIC
        engines[peer] = options.theirs(task="generate", generate=how)
    found: dict[str, Way] = {}
    for num_rows in sizing.num_rows:
        work = prompts_of(num_rows, sizing.prompt_tokens, sizing.output_tokens)
        past = sizing.prompt_tokens + sizing.output_tokens // 2
        least_s = step_bytes(config, num_rows, past, num_bytes) / options.limits.copy_bytes_per_s
        for name, run in engines.items():
            found[f"{counted(num_rows, 'row')}: {name}"] = partial(_turn, run, work, least_s)
    return found


def _turn(run: Run, work: Work, least_step_s: float) -> Turn:
    answer = run(work)
    turn = {"seconds": answer.seconds, "tokens": work.amount, **answer.counts}
    if "step_s" in turn:
        turn["bandwidth"] = least_step_s / turn["step_s"]
    return turn


def figures(rounds: Rounds) -> list[Figure]:
    share, outside = "share of the memory bandwidth", "of a step outside of the decoder's run"
    columns = (
        Column("tokens/s", "tokens/seconds"),
        Column(f"over {STATIC}", "tokens/seconds", over=STATIC),
        Column(f"over {COMPILED}", "tokens/seconds", over=COMPILED),
    )
    of_steps = (
        Column("step", "step_s", "ms"),
        Column(share, "bandwidth", "%"),
        Column(outside, "outside", "%"),
    )
    steps = {way: [turn for turn in turns if "step_s" in turn] for way, turns in rounds.items()}
    found = by_columns(*of_steps)({way: turns for way, turns in steps.items() if turns})
    goals = [Goal(share, 70.0, "1 row:")]
    for many in (f"{FULL.num_rows[1]} rows:", f"{TINY.num_rows[1]} rows:"):
        goals += [Goal(outside, 5.0, many, at_most=True), Goal(f"over {COMPILED}", 1.5, many)]
    return with_goals([*by_columns(*columns)(rounds), *found], goals, "tokens/s")


DECODERS = Measure(
    "devices-decoders",
    "Decoders beside transformers with a static cache, and their share of the memory's bandwidth",
    "Networks on a device",
    ShapeOptions,
    ways,
    figures,
)
