"""The paged cache beside slots, in the same engine with the same prompts.

A slot has room for the longest sequence, a sequence over blocks takes what it needs, and blocks of
a beginning that several prompts share are there once. So three loads: rows that are alike, prompts
that share beginnings, and those again with memory for a few slots only, where the number of
sequences that run at once is what differs. Each round has prompts of its own. The paged cache is
for CUDA alone: on a CPU the slots are measured by themselves.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import numpy as np

from loadtests.compare.devices.counts import cache_bytes
from loadtests.compare.devices.decoders import NUM_IDS, prompts_of, value_bytes
from loadtests.compare.devices.options import ShapeOptions
from loadtests.compare.devices.shapes import config_of
from loadtests.compare.worker import Run, Work
from loadtests.measure.records import Column, Figure, Measure, Rounds, Turn, Way, by_columns

SLOTS, PAGED = "ours, slots", "ours, paged"
SEED, NUM_GROUPS, NUM_REQUESTS = 5, 4, 3  # prompts of a round, for each row in flight
ALIKE, SHARED, FEW = "rows alike", "shared beginnings", "shared beginnings, memory for few slots"
SAME = "texts that are the same as over slots"


def shared_prompts(num_rows: int, num_shared: int, number: int) -> Work:
    """The prompts of a round: several groups, mixed, each with a beginning that rounds share.

    Behind it a prompt has up to a quarter as many tokens of its own, and its output up to a third.
    """
    groups = np.random.default_rng(SEED).integers(1, NUM_IDS, (NUM_GROUPS, num_shared))
    generator, rows, num_tokens = np.random.default_rng(SEED + 1 + number), [], []
    for _ in range(NUM_REQUESTS * num_rows):
        own = generator.integers(1, NUM_IDS, generator.integers(1, num_shared // 4 + 1))
        rows.append([*groups[generator.integers(NUM_GROUPS)].tolist(), *own.tolist()])
        num_tokens.append(int(generator.integers(2, num_shared // 3 + 1)))
    return Work(rows, num_rows, num_tokens)


def ways(options: ShapeOptions, stack: ExitStack) -> dict[str, Way]:
    """Each load over each layout that the device has."""
    options.version(is_text=True)
    num_rows, num_shared = (4, 16) if options.is_tiny else (32, 256)
    config, number = config_of(options.shape), value_bytes(options.device)
    found: dict[str, Way] = {}
    for load in (ALIKE, SHARED, FEW):
        num_slots = num_rows // (4 if load == FEW else 1)
        works = partial(shared_prompts, num_rows, num_shared)
        if load == ALIKE:
            works = partial(prompts_of, num_rows, num_shared // 2, num_shared // 4)
        texts: dict[str, list[list[object]]] = {}
        for layout in (SLOTS,) if options.device == "cpu" else (SLOTS, PAGED):
            settings = {
                "max_running_sequences": num_rows,
                "max_context_tokens": 2 * num_shared,
                "kv_cache_bytes": cache_bytes(config, num_slots, 2 * num_shared, number),
                "prefix_reuse": True,
                "cache_layout": layout.removeprefix("ours, "),
            }
            run = options.ours(stack, task="generate", settings=settings)
            texts[layout] = []
            found[f"{load}: {layout}"] = partial(_turn, run, works, layout, texts)
    return found


def _turn(
    run: Run, works: Callable[[int], Work], layout: str, texts: dict[str, list[list[object]]]
) -> Turn:
    """The next prompts; what is the same is of all rounds so far that both layouts have done."""
    work = works(len(texts[layout]))
    answer = run(work)
    texts[layout].append(list(answer.outputs))
    turn = {"seconds": answer.seconds, "tokens": work.amount, **answer.counts}
    turn["first_s"] = statistics.median(answer.first_s)
    if layout == PAGED:
        rounds = zip(texts[PAGED], texts[SLOTS], strict=False)
        same = [one == other for pair in rounds for one, other in zip(*pair, strict=True)]
        turn["same"] = statistics.mean(same or [1.0])
    return turn


def figures(rounds: Rounds) -> list[Figure]:
    paged = [way for way in rounds if way.endswith(PAGED)]
    columns = (
        Column("tokens/s", "tokens/seconds"),
        Column("over slots", "tokens/seconds", over=SLOTS, goals=dict.fromkeys(paged, 1.0)),
        Column("running at once", "rows_a_step"),
        Column("most", "most_rows"),
        Column("first token", "first_s", "ms"),
        Column("reused", "reused", "%"),
        Column(SAME, "same", "%", goals=dict.fromkeys(paged, 100.0)),
    )
    last = {way: turns[-1:] for way, turns in rounds.items()}
    found = [each for each in by_columns(*columns)(rounds) if each.column != SAME]
    return found + [each for each in by_columns(*columns)(last) if each.column == SAME]


LAYOUTS = Measure(
    "layouts",
    "The paged cache beside slots, with prompts alike and prompts that share beginnings",
    "Networks on a device",
    ShapeOptions,
    ways,
    figures,
)
