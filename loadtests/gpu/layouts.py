"""Section 8: the paged cache beside slots, in the same engine with the same prompts.

A slot has room for the longest sequence, a sequence over blocks takes what it needs, and blocks of
a beginning that several prompts share are there once. So three loads: rows that are alike, prompts
that share beginnings, and those again with memory for a few slots only, where the number of
sequences that run at once is what differs. The paged cache is for CUDA alone: on a CPU the slots
are measured by themselves. docs/cuda.md says what was verified on CUDA.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loadtests.gpu.builds import Builds, builds_of
from loadtests.gpu.claims import Claim, at_least
from loadtests.gpu.context import Context, Findings
from loadtests.gpu.counts import Sizes, cache_bytes
from loadtests.gpu.engines import NUM_IDS, Generated, Generates, engine, prompts_of
from loadtests.gpu.shapes import TITLES, decoders
from loadtests.gpu.speed import noise_sentence
from loadtests.gpu.timing import Quartiles, interleaved, noise_of, ratios, short
from loadtests.load.engine import Prompt
from service.errors import AttendantError

SLOTS, PAGED = "slots", "paged"
MIN_ROUNDS, MAX_ROUNDS, TINY_ROUNDS = 3, 7, 2
SEED = 5
ALL_EQUAL = 1.0  # share of texts; where layouts differ in the last bits, ties are broken otherwise
# A way to open an engine whose cache has the given number of bytes.
Open = Callable[[int], AbstractContextManager[Generates]]


@dataclass(frozen=True, slots=True)
class Load:
    """Prompts, how many are in flight, and the slots that the memory of the cache is enough for.

    Each round has prompts of its own, or all of a prompt would be known from the round before.
    """

    name: str
    prompts: Callable[[int], list[Prompt]]  # of a round, by its number
    in_flight: int
    memory_slots: int


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


def loads(*, is_tiny: bool) -> list[Load]:
    """The loads, the same for every layout."""
    sizing = Sizing.of(is_tiny=is_tiny)
    rows, few = sizing.in_flight, sizing.few_slots
    even = partial(prompts_of, rows, *sizing.even_tokens)
    shared = partial(shared_prompts, sizing)
    return [
        Load("rows alike", even, rows, rows),
        Load("shared beginnings", shared, rows, rows),
        Load(f"shared beginnings, memory for {few} slots", shared, rows, few),
    ]


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


def run(context: Context) -> Findings:
    """Figures of all loads over both layouts."""
    name = next(iter(decoders(is_tiny=context.is_tiny)))
    builds = builds_of(context)
    builds.start([name])
    if problem := builds.problem(name, context.left_s):
        raise RuntimeError(f"{TITLES[name]}: {problem}")
    layouts = [SLOTS] if context.device == "cpu" else [SLOTS, PAGED]
    opens = {layout: partial(_open, context, builds, name, layout) for layout in layouts}
    findings = compare(context, opens, slot_bytes_of(context, name))
    if context.device == "cpu":
        why = "the paged cache was not run: its operator has no kernel for the CPU."
        findings["left_out"].insert(0, f"{TITLES[name]}: {why}")
    findings["summary"].insert(0, f"{TITLES[name]}, our engine in process, greedy.")
    return findings


def slot_bytes_of(context: Context, name: str) -> int:
    """Keys and values of one sequence of the longest length."""
    sizing, config = Sizing.of(is_tiny=context.is_tiny), decoders(is_tiny=context.is_tiny)[name]
    value_bytes = 4 if context.device == "cpu" else 2
    return cache_bytes(Sizes.of(config), 1, sizing.max_context, value_bytes)


def _open(
    context: Context, builds: Builds, name: str, layout: str, num_bytes: int
) -> AbstractContextManager[Generates]:
    sizing = Sizing.of(is_tiny=context.is_tiny)
    return engine(
        builds.repository,
        name,
        device=context.device,
        max_running_sequences=sizing.in_flight,
        max_context_tokens=sizing.max_context,
        kv_cache_bytes=num_bytes,
        prefix_reuse=True,
        cache_layout=layout,
    )


def compare(context: Context, opens: Mapping[str, Open], slot_bytes: int) -> Findings:
    """Figures of each layout under each load, as long as there is time."""
    rows: list[dict[str, Any]] = []
    noise: list[str] = []
    left_out: list[str] = []
    texts: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    some = loads(is_tiny=context.is_tiny)
    for index, load in enumerate(some):
        if context.is_over:
            left_out.append(f"{load.name}: the section's time was over.")
            continue
        part = context.until(1 / (len(some) - index))
        part.say(load.name)
        runs, why = _runs(part, load, opens, slot_bytes)
        left_out += why
        seconds = {layout: [each.seconds for each in own] for layout, (own, _) in runs.items()}
        noise += noise_of(seconds, load.name)
        for layout, (own, steps_rows) in runs.items():
            texts[load.name, layout] = _texts(own)
            rows.append(_row(load, layout, seconds, own, steps_rows, slot_bytes))
    return {
        "summary": noise_sentence(noise),
        "claims": _claims(rows, texts),
        "left_out": left_out,
        "tables": [_table(rows)],
        "rows": rows,
    }


Runs = dict[str, tuple[list[Generated], list[int]]]  # and the rows of each of the layout's steps


def _runs(
    context: Context, load: Load, opens: Mapping[str, Open], slot_bytes: int
) -> tuple[Runs, list[str]]:
    """What each layout makes of a load in turns, and why others make nothing of it."""
    opened: dict[str, Generates] = {}
    why: list[str] = []
    done: dict[str, list[Generated]] = {}
    with ExitStack() as stack:
        for layout, open_engine in opens.items():
            try:
                opened[layout] = stack.enter_context(open_engine(load.memory_slots * slot_bytes))
            except AttendantError as error:
                why.append(f"{load.name}, {layout}: {error}")
        for layout, each in opened.items():
            done[layout] = []
            each.generate(load.prompts(-1), load.in_flight)  # touches memory, knows beginnings
            each.steps.clear()
        ways = {
            layout: partial(_append, done[layout], each, load) for layout, each in opened.items()
        }
        most = TINY_ROUNDS if context.is_tiny else MAX_ROUNDS
        bounds = {"min_rounds": min(MIN_ROUNDS, most), "max_rounds": most, "warm_up": 0}
        if ways:
            interleaved(ways, max(0.0, context.left_s), **bounds)
        rows_of = {
            layout: [step.num_rows for step in each.steps] for layout, each in opened.items()
        }
    fewest = min(map(len, done.values()), default=0)
    return {layout: (own[:fewest], rows_of[layout]) for layout, own in done.items()}, why


def _append(done: list[Generated], way: Generates, load: Load) -> None:
    done.append(way.generate(load.prompts(len(done)), load.in_flight))


def _texts(rounds: Sequence[Generated]) -> list[tuple[int, ...]]:
    """The token ids of all prompts with their outputs."""
    samples = [sample for each in rounds for sample in each.samples]
    return [tuple(sample.token_ids[: sample.num_tokens].tolist()) for sample in samples]


def _row(
    load: Load,
    layout: str,
    seconds: dict[str, list[float]],
    own: Sequence[Generated],
    step_rows: Sequence[int],
    slot_bytes: int,
) -> dict[str, Any]:
    """The figures of one layout under one load, as plain JSON."""
    taken = Quartiles.of(seconds[layout])
    samples = [sample for each in own for sample in each.samples]
    num_tokens = sum(sample.num_output_tokens for sample in samples)
    per_s = [
        sum(sample.num_output_tokens for sample in each.samples) / each.seconds for each in own
    ]
    row = {
        "load": load.name,
        "layout": layout,
        "num_prompts": len(samples),
        "num_tokens": num_tokens,
        "cache_bytes": load.memory_slots * slot_bytes,
        "seconds": taken.to_dict(),
        "tokens_per_s": Quartiles.of(per_s).to_dict(),
        "most_running": max(step_rows),
        "mean_running": statistics.mean(step_rows),
        "first_token_s": Quartiles.of([s.timings.time_to_first_token_s for s in samples]).to_dict(),
        "reused_tokens": sum(s.num_reused_tokens for s in samples),
        "prompt_tokens": sum(s.num_prompt_tokens for s in samples),
    }
    if layout != SLOTS and SLOTS in seconds:
        row["over_slots"] = ratios(seconds[layout], seconds[SLOTS]).to_dict()
    return row


def _claims(
    rows: Sequence[dict[str, Any]], texts: Mapping[tuple[str, str], list[tuple[int, ...]]]
) -> list[Claim]:
    """That nothing is slower by being paged, and how many texts are the same."""
    claims = []
    for row in rows:
        if "over_slots" not in row:
            continue
        over = row["over_slots"]["median"]
        claims.append(at_least(f"{row['load']}: paged over slots", over, 1.0, kind="goal"))
        one, other = texts[row["load"], row["layout"]], texts[row["load"], SLOTS]
        same = len(set(one) & set(other)) / len(set(other))
        what = f"{row['load']}: share of texts that are the same as over slots"
        claims.append(at_least(what, same, ALL_EQUAL, kind="goal"))
    return claims


def _table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": "Layouts of the cache",
        "columns": [
            *("load", "layout", "tokens/s", "over slots", "cache, MiB"),
            *("running at once: mean, most", "first token, ms", "prompt tokens reused"),
        ],
        "rows": [
            [
                row["load"],
                row["layout"],
                Quartiles(**row["tokens_per_s"]).text(),
                Quartiles(**row["over_slots"]).text() if "over_slots" in row else "",
                short(row["cache_bytes"] / 2**20),
                f"{row['mean_running']:.1f}, {row['most_running']}",
                f"{row['first_token_s']['median'] * 1e3:.1f}",
                f"{row['reused_tokens'] / row['prompt_tokens']:.0%}",
            ]
            for row in rows
        ],
    }
