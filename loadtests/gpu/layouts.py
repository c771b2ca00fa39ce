"""Section 8: the paged cache beside slots, in the same engine with the same prompts.

A slot has room for the longest sequence, a sequence over blocks takes what it needs, and blocks of
a beginning that several prompts share are there once. So three loads: rows that are alike, prompts
that share beginnings, and those again with memory for a few slots only, where the number of
sequences that run at once is what differs. The paged cache is for CUDA alone: on a CPU the slots
are measured by themselves. docs/how-to/cuda.md says what was verified on CUDA.
"""

import statistics
from contextlib import ExitStack
from functools import partial

import numpy as np

from loadtests.gpu.context import Context
from loadtests.gpu.counts import Sizes, cache_bytes
from loadtests.gpu.decoders import NUM_IDS, engine, prompts_of
from loadtests.gpu.models import SHAPES, Model, first_of
from loadtests.gpu.timing import MIN_ROUNDS, interleaved, ratios, write_rows
from loadtests.load.engine import Prompt
from models.networks.gpt import GPTConfig
from models.networks.llama import LlamaConfig
from service.generation.sequence import Sequence as Sample

SLOTS, PAGED = "slots", "ours, paged"
SEED, NUM_GROUPS, NUM_REQUESTS = 5, 4, 3  # prompts of a round, for each row in flight
ALIKE, SHARED, FEW = "rows alike", "shared beginnings", "shared beginnings, memory for few slots"


def shared_prompts(num_rows: int, num_shared: int, number: int) -> list[Prompt]:
    """The prompts of a round: several groups, mixed, each with a beginning that rounds share.

    Behind it a prompt has up to a quarter as many tokens of its own, and its output up to a third.
    """
    groups = np.random.default_rng(SEED).integers(1, NUM_IDS, (NUM_GROUPS, num_shared))
    generator = np.random.default_rng(SEED + 1 + number)
    prompts = []
    for _ in range(NUM_REQUESTS * num_rows):
        own = generator.integers(1, NUM_IDS, generator.integers(1, num_shared // 4 + 1))
        group = groups[generator.integers(NUM_GROUPS)]
        num_outputs = int(generator.integers(2, num_shared // 3 + 1))
        prompts.append(Prompt([*group.tolist(), *own.tolist()], num_outputs))
    return prompts


def run(context: Context) -> None:
    """Figures of all loads over both layouts."""
    if (model := first_of(context, GPTConfig, LlamaConfig)) is None:
        context.leave_out("blocks beside slots: no decoder is there")
        return
    layouts = [SLOTS] if context.device == "cpu" else [SLOTS, PAGED]
    if PAGED not in layouts:
        context.leave_out("the paged cache: its operator has no kernel for the CPU")
    for index, load in enumerate((ALIKE, SHARED, FEW)):
        if context.is_over:
            context.leave_out(f"{load}: no time was left")
        else:
            _measure(context, model, load, layouts, context.until(1 / (3 - index)))
            context.say(load)


def _measure(context: Context, model: Model, load: str, layouts: list[str], time_s: float) -> None:
    """A row of each layout under a load; each round has prompts of its own."""
    num_rows, num_shared = (4, 16) if context.is_tiny else (32, 256)
    slots, value_bytes = num_rows // (4 if load == FEW else 1), 4 if context.device == "cpu" else 2
    num_bytes = cache_bytes(Sizes.of(SHAPES[model.name]), slots, 2 * num_shared, value_bytes)
    prompts = partial(shared_prompts, num_rows, num_shared)
    if load == ALIKE:
        prompts = partial(prompts_of, num_rows, num_shared // 2, num_shared // 4)
    settings = {"device": context.device, "max_running_sequences": num_rows, "prefix_reuse": True}
    settings |= {"max_context_tokens": 2 * num_shared, "kv_cache_bytes": num_bytes}
    done: dict[str, list[list[Sample]]] = {layout: [] for layout in layouts}
    with ExitStack() as stack:
        engines = {
            layout: stack.enter_context(
                engine(model, **settings, cache_layout=layout.removeprefix("ours, "))
            )
            for layout in layouts
        }
        for own in engines.values():
            own.run(prompts(-1), num_rows)  # touches memory, knows beginnings
            own.steps.clear()

        def turn(layout: str) -> None:
            done[layout].append(engines[layout].run(prompts(len(done[layout])), num_rows))

        ways = {layout: partial(turn, layout) for layout in layouts}
        seconds = interleaved(ways, time_s, max_rounds=2 * MIN_ROUNDS, warm_up=0)
        rows = {layout: [step.num_rows for step in own.steps] for layout, own in engines.items()}
    samples = {layout: [each for one in rounds for each in one] for layout, rounds in done.items()}
    num_tokens = sum(each.num_output_tokens for each in samples[SLOTS]) / len(done[SLOTS])

    def more(layout: str, _: float) -> dict[str, object]:
        own = samples[layout]
        reused = sum(each.num_reused_tokens for each in own)
        first_s = statistics.median(each.timings.time_to_first_token_s for each in own)
        return {
            "running at once": statistics.mean(rows[layout]),
            "most": max(rows[layout]),
            "first token, ms": first_s * 1e3,
            "reused": f"{reused / sum(each.num_prompt_tokens for each in own):.0%}",
        }

    where = {"load": load, "cache, MiB": num_bytes / 2**20}
    write_rows(context, "Layouts of the cache", where, seconds, (num_tokens, "tokens/s"), more)
    if PAGED in seconds:
        over = ratios(seconds[PAGED], seconds[SLOTS]).median
        context.at_least(f"{load}: paged over slots", over, 1.0, kind="goal")
        one, other = (
            {tuple(e.token_ids[: e.num_tokens].tolist()) for e in samples[layout]}
            for layout in (PAGED, SLOTS)
        )
        same = len(one & other) / len(other)
        what = f"{load}: share of texts that are the same as over slots"
        context.at_least(what, same, 1.0, kind="goal")
