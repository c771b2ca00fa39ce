"""Tokens per second of decoders: our engine beside transformers' `generate` with a static cache.

A turn takes prompts of one length to outputs of one length, all rows at once: prompts included on
both sides. The step, whose traffic of memory is known, is the time between two tokens of a row.
transformers compiles a step by itself where its cache is static and on a GPU; that is the peer, and
the same without compiling beside it. docs/cuda.md says what was verified on CUDA.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.gpu.build import decoder_kinds
from loadtests.gpu.context import Context
from loadtests.gpu.counts import Sizes, cache_bytes, step_bytes
from loadtests.gpu.engines import (
    Engine,
    engine,
    full_steps,
    host_share,
    prompts_of,
    step_intervals_s,
)
from loadtests.gpu.limits import Limits
from loadtests.gpu.shapes import TITLES, DecoderConfig, decoders
from loadtests.gpu.speed_encoders import Task
from loadtests.gpu.timing import Quartiles, Way, interleaved, noise_of, ratios
from loadtests.gpu.transformers_peer import (
    STATIC,
    STATIC_EAGER,
    Generate,
    generating,
    peers_of,
    said,
)
from loadtests.load.engine import Prompt
from service.errors import AttendantError
from service.records import RanStep

SLOTS, PAGED, RECORDED = "ours, slots", "ours, paged", "ours, paged, CUDA graphs"
# Settings of the server for each of our ways.
OURS: dict[str, dict[str, object]] = {
    PAGED: {"cache_layout": "paged"},
    RECORDED: {"cache_layout": "paged", "cuda_graphs": True},
    SLOTS: {"cache_layout": "slots"},
}
MIN_ROUNDS, MAX_ROUNDS, TINY_ROUNDS = 3, 9, 3
# What is left of the time for a step that is compiled, if it is in the compiler's folder or not.
LEAST_KNOWN_S, LEAST_COMPILE_S = 8.0, 30.0
CACHE_BYTES = 24 * 2**30  # of each way: 128 rows of GPT-2 XL need 20


@dataclass(frozen=True, slots=True)
class Sizing:
    """The loads of one mode of the check."""

    num_rows: tuple[int, ...]  # in flight, the most important first
    prompt_tokens: int
    output_tokens: int
    first_token_prompt: int  # tokens of the prompt whose first token is timed
    max_context: int

    @classmethod
    def of(cls, *, is_tiny: bool) -> "Sizing":
        if is_tiny:
            return cls((1, 4), 8, 8, 24, 64)
        return cls((1, 32, 8, 128), 128, 64, 512, 520)

    @property
    def mean_past(self) -> int:
        """Tokens in the cache of a row, in the middle of its output."""
        return self.prompt_tokens + self.output_tokens // 2


@dataclass(frozen=True, slots=True)
class Contest:
    """One shape, and all ways to run it."""

    name: str
    config: DecoderConfig
    sizing: Sizing
    value_bytes: int  # of a weight and of a cached number, in ours
    limits: Limits
    ours: dict[str, Engine]
    peers: dict[str, Generate]
    compiled: Collection[Task]

    def title(self, num_rows: int) -> str:
        return f"{TITLES[self.name]}, {num_rows} in flight"


def compare(
    context: Context, name: str, repository: Path, limits: Limits, compiled: Collection[Task] = ()
) -> dict[str, Any]:
    """Figures of one decoder: `rows`, one for each way and number in flight, and remarks."""
    sizing = Sizing.of(is_tiny=context.is_tiny)
    config = decoders(is_tiny=context.is_tiny)[name]
    value_bytes = 4 if context.device == "cpu" else 2
    findings: dict[str, Any] = {"rows": [], "first_token": [], "left_out": [], "noise": []}
    with ExitStack() as stack:
        ours: dict[str, Engine] = {}
        for way in ways_of(name, context.device):
            settings = engine_settings(config, sizing, context.device) | OURS[way]
            try:
                ours[way] = stack.enter_context(engine(repository, name, **settings))
            except AttendantError as error:
                findings["left_out"].append(f"{TITLES[name]}, {way}: {error}")
        if not ours:
            return findings
        peers, why = stack.enter_context(peers_of(context, config))
        findings["left_out"] += why
        contest = Contest(name, config, sizing, value_bytes, limits, ours, peers, compiled)
        _fill(findings, context, contest)
    return findings


def compile_rows(context: Context, name: str, num_rows: int) -> None:
    """Compile a step of `num_rows` rows into the compiler's folder, or raise where not."""
    sizing = Sizing.of(is_tiny=context.is_tiny)
    prompts = prompts_of(num_rows, sizing.prompt_tokens, sizing.output_tokens)
    with peers_of(context, decoders(is_tiny=context.is_tiny)[name]) as (peers, why):
        if not peers:
            raise RuntimeError("; ".join(why))
        way = generating(peers.get(STATIC, peers[STATIC_EAGER]), prompts)
        for _ in range(2):
            way()


def ways_of(name: str, device: str) -> list[str]:
    """Our ways for the graphs that are built, the default first."""
    layouts = [layout or "slots" for _, layout in decoder_kinds(name, device)]
    return [way for way, settings in OURS.items() if settings["cache_layout"] in layouts]


def engine_settings(config: DecoderConfig, sizing: Sizing, device: str) -> dict[str, object]:
    """Settings of the server with which all rows run at once."""
    value_bytes = 4 if device == "cpu" else 2
    most = max(sizing.num_rows)
    num_tokens = min(sizing.max_context, config.max_positions)
    needed = cache_bytes(Sizes.of(config), most, num_tokens, value_bytes)
    return {
        "device": device,
        "max_running_sequences": most,
        "max_context_tokens": num_tokens,
        "kv_cache_bytes": min(needed, CACHE_BYTES),
    }


def _fill(findings: dict[str, Any], context: Context, contest: Contest) -> None:
    """Time all numbers of rows, and the first token, as long as there is time."""
    some = contest.sizing.num_rows
    for index, num_rows in enumerate(some):
        if context.is_over:
            findings["left_out"].append(f"{contest.title(num_rows)}: the section's time was over.")
            continue
        part = context.until(1 / (len(some) - index))
        part.say(contest.title(num_rows))
        for key, values in _compare_rows(part, contest, num_rows).items():
            findings[key] += values
        if not index:
            findings["first_token"] = _first_tokens(part, contest)


def _compare_rows(context: Context, contest: Contest, num_rows: int) -> dict[str, list[Any]]:
    sizing = contest.sizing
    prompts = prompts_of(num_rows, sizing.prompt_tokens, sizing.output_tokens)
    ways: dict[str, Way] = {}
    for way, own in contest.ours.items():
        ways[way] = partial(own.run, prompts, num_rows)
        ways[way]()  # touches the memory
        own.steps.clear()
    peers, remarks = _warm_peers(context, contest, prompts)
    rounds = {"min_rounds": MIN_ROUNDS, "warm_up": 0}
    rounds["max_rounds"] = TINY_ROUNDS if context.is_tiny else MAX_ROUNDS
    seconds = interleaved(ways | peers, max(0.0, context.left_s), **rounds)
    rows = [_row(contest, num_rows, way, seconds) for way in seconds]
    for row in rows:
        if row["way"] in contest.ours:
            row |= _step_figures(contest, num_rows, contest.ours[row["way"]].steps)
    noise = noise_of(seconds, contest.title(num_rows))
    return {"rows": rows, "left_out": remarks, "noise": noise}


def _warm_peers(
    context: Context, contest: Contest, prompts: Sequence[Prompt]
) -> tuple[dict[str, Way], list[str]]:
    """The peers that there is time for, compiled, with CUDA graphs recorded; and why others not."""
    ways: dict[str, Way] = {}
    remarks: list[str] = []
    what = contest.title(len(prompts))
    is_known = (contest.name, str(len(prompts))) in contest.compiled
    least_s = LEAST_KNOWN_S if is_known else LEAST_COMPILE_S
    for peer, generate in contest.peers.items():
        if peer == STATIC and not context.is_tiny and context.left_s < least_s:
            remarks.append(f"{what}: no time was left for {peer}.")
            continue
        way = generating(generate, prompts)
        try:
            for _ in range(2):
                way()
        except Exception as error:  # of another library, whose errors have no common class
            remarks.append(f"{what}: {peer}: {said(error)}")
        else:
            ways[peer] = way
    return ways, remarks


def _step_figures(contest: Contest, num_rows: int, ran: Sequence[RanStep]) -> dict[str, Any]:
    """The time of a step, its share of the memory's bandwidth, and of time outside of the run.

    Empty where the rows did not all run at once.
    """
    steps = full_steps(ran, num_rows)
    intervals_s = step_intervals_s(steps)
    if not intervals_s:
        return {}
    sizes, past = Sizes.of(contest.config), contest.sizing.mean_past
    num_bytes = step_bytes(sizes, num_rows, past, contest.value_bytes)
    step = Quartiles.of(intervals_s)
    return {
        "step_s": step.to_dict(),
        "step_bytes": num_bytes,
        "share_of_bandwidth": num_bytes / step.median / contest.limits.copy_bytes_per_s,
        "host_share": host_share(steps),
    }


def _row(
    contest: Contest, num_rows: int, way: str, seconds: dict[str, list[float]]
) -> dict[str, Any]:
    own, amount = Quartiles.of(seconds[way]), num_rows * contest.sizing.output_tokens
    over = {
        peer: ratios(seconds[way], seconds[peer]).to_dict()
        for peer in seconds
        if peer in contest.peers and peer != way
    }
    return {
        "shape": contest.name,
        "in_flight": num_rows,
        "way": way,
        "num_tokens": amount,
        "seconds": own.to_dict(),
        "tokens_per_s": own.per_second(amount).to_dict(),
        "speed_over": over,
    }


def _first_tokens(context: Context, contest: Contest) -> list[dict[str, Any]]:
    """The time to the first token of one prompt, by our default way and by PyTorch.

    A prompt is not compiled in any case.
    """
    (prompt,) = prompts_of(1, contest.sizing.first_token_prompt, 2)
    first, own = next(iter(contest.ours.items()))
    taken_s: list[float] = []
    ways: dict[str, Way] = {first: lambda: taken_s.append(own.first_token_s(prompt))}
    if STATIC_EAGER in contest.peers:
        ways[STATIC_EAGER] = partial(contest.peers[STATIC_EAGER], [prompt.ids], 1)
    seconds = interleaved(ways, min(2.0, max(0.0, context.left_s)), max_rounds=15)
    seconds[first] = taken_s[-len(seconds[first]) :]  # without the tokens that follow
    return [
        {"shape": contest.name, "way": way, "prompt_tokens": len(prompt.ids)}
        | {"seconds": Quartiles.of(values).to_dict()}
        for way, values in seconds.items()
    ]
