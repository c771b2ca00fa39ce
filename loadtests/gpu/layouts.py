"""Section 8: the paged cache beside slots, in the same engine with the same prompts.

A slot has room for the longest sequence, a sequence over blocks takes what it needs, and blocks of
a beginning that several prompts share are there once. So three loads: rows that are alike, prompts
that share beginnings, and those again with memory for a few slots only, where the number of
sequences that run at once is what differs. The paged cache is for CUDA alone: on a CPU the slots
are measured by themselves. docs/cuda.md says what was verified on CUDA.
"""

import statistics
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np

from loadtests.gpu.context import Context
from loadtests.gpu.counts import Sizes, cache_bytes
from loadtests.gpu.decoders import NUM_IDS, Engine, engine, prompts_of
from loadtests.gpu.models import SHAPES, Model, as_they_come, models_of
from loadtests.gpu.timing import MIN_ROUNDS, interleaved, ratios, write_rows
from loadtests.load.engine import Prompt
from models.networks.encoder import EncoderConfig
from service.generation.sequence import Sequence as Sample

SLOTS, PAGED = "slots", "ours, paged"
SEED = 5


@dataclass(frozen=True, slots=True)
class Sizing:
    """The loads of one mode of the check."""

    in_flight: int
    even_tokens: tuple[int, int]  # of prompt and output
    num_requests: int
    shared_tokens: int  # that prompts of one group begin with
    num_groups: int
    own_tokens: tuple[int, int]  # least and most, of a prompt behind that
    output_tokens: tuple[int, int]
    few_slots: int
    max_context: int

    @classmethod
    def of(cls, *, is_tiny: bool) -> "Sizing":
        if is_tiny:
            return cls(4, (8, 8), 8, 16, 2, (1, 6), (2, 8), 2, 48)
        return cls(32, (128, 64), 96, 256, 4, (16, 64), (16, 96), 8, 512)


def shared_prompts(sizing: Sizing, number: int) -> list[Prompt]:
    """The prompts of a round: several groups, mixed, each with a beginning that rounds share."""
    groups = np.random.default_rng(SEED).integers(
        1, NUM_IDS, (sizing.num_groups, sizing.shared_tokens)
    )
    generator = np.random.default_rng(SEED + 1 + number)
    (fewest, most), (shortest, longest) = sizing.own_tokens, sizing.output_tokens
    return [
        Prompt(
            [
                *groups[generator.integers(sizing.num_groups)].tolist(),
                *generator.integers(1, NUM_IDS, generator.integers(fewest, most + 1)).tolist(),
            ],
            int(generator.integers(shortest, longest + 1)),
        )
        for _ in range(sizing.num_requests)
    ]


def run(context: Context) -> None:
    """Figures of all loads over both layouts."""
    names = [name for name in context.run.shapes if not isinstance(SHAPES[name], EncoderConfig)]
    models = as_they_come(context, models_of(context.run, *[(name, "") for name in names[:1]]))
    if (model := next(models, None)) is None:
        context.leave_out("blocks beside slots: no decoder is there")
        return
    sizing = Sizing.of(is_tiny=context.is_tiny)
    layouts = [SLOTS] if context.device == "cpu" else [SLOTS, PAGED]
    if PAGED not in layouts:
        context.leave_out("the paged cache: its operator has no kernel for the CPU")
    loads = [
        (name, slots)
        for name, slots in (
            ("rows alike", sizing.in_flight),
            ("shared beginnings", sizing.in_flight),
            (f"shared beginnings, memory for {sizing.few_slots} slots", sizing.few_slots),
        )
    ]
    for index, (name, slots) in enumerate(loads):
        if context.is_over:
            context.leave_out(f"{name}: no time was left")
        else:
            _measure(context, model, name, slots, layouts, context.until(1 / (len(loads) - index)))
            context.say(name)


def _measure(
    context: Context, model: Model, name: str, slots: int, layouts: list[str], time_s: float
) -> None:
    """A row of each layout under a load; each round has prompts of its own."""
    sizing, value_bytes = Sizing.of(is_tiny=context.is_tiny), 4 if context.device == "cpu" else 2
    num_bytes = cache_bytes(Sizes.of(SHAPES[model.name]), slots, sizing.max_context, value_bytes)
    shared = partial(shared_prompts, sizing)
    even = partial(prompts_of, sizing.in_flight, *sizing.even_tokens)
    prompts, done = (even if name == "rows alike" else shared), dict[str, list[list[Sample]]]()
    with ExitStack() as stack:
        engines: dict[str, Engine] = {}
        for layout in layouts:
            own = engines[layout] = stack.enter_context(
                engine(
                    *(model.repository, model.name),
                    device=context.device,
                    max_running_sequences=sizing.in_flight,
                    max_context_tokens=sizing.max_context,
                    kv_cache_bytes=num_bytes,
                    prefix_reuse=True,
                    cache_layout=layout.removeprefix("ours, "),
                )
            )
            own.run(prompts(-1), sizing.in_flight)  # touches memory, knows beginnings
            own.steps.clear()
            done[layout] = []

        def turn(layout: str) -> None:
            load = prompts(len(done[layout]))
            done[layout].append(engines[layout].run(load, sizing.in_flight))

        ways = {layout: partial(turn, layout) for layout in layouts}
        seconds = interleaved(ways, time_s, max_rounds=2 * MIN_ROUNDS, warm_up=0)
        rows = {layout: [step.num_rows for step in own.steps] for layout, own in engines.items()}
    texts = [sample for each in done[layouts[0]] for sample in each]
    tokens = sum(each.num_output_tokens for each in texts) / len(done[layouts[0]])

    def more(layout: str, _: float) -> dict[str, object]:
        samples = [sample for each in done[layout] for sample in each]
        reused = sum(each.num_reused_tokens for each in samples)
        first_s = statistics.median(each.timings.time_to_first_token_s for each in samples)
        return {
            "running at once": statistics.mean(rows[layout]),
            "most": max(rows[layout]),
            "first token, ms": first_s * 1e3,
            "reused": f"{reused / sum(each.num_prompt_tokens for each in samples):.0%}",
        }

    where = {"load": name, "cache, MiB": num_bytes / 2**20}
    write_rows(context, "Layouts of the cache", where, seconds, (tokens, "tokens/s"), more)
    if PAGED in seconds:
        over = ratios(seconds[PAGED], seconds[SLOTS]).median
        context.at_least(f"{name}: paged over slots", over, 1.0, kind="goal")
        one, other = (texts_of(done[layout]) for layout in (PAGED, SLOTS))
        same = len(one & other) / len(other)
        what = f"{name}: share of texts that are the same as over slots"
        context.at_least(what, same, 1.0, kind="goal")


def texts_of(rounds: list[list[Sample]]) -> set[tuple[int, ...]]:
    """The token ids of the prompts of all rounds, with their outputs."""
    samples = [sample for each in rounds for sample in each]
    return {tuple(sample.token_ids[: sample.num_tokens].tolist()) for sample in samples}
