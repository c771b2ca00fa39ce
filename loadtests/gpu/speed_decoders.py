"""Tokens per second of decoders: our engine beside transformers' `generate` with a static cache.

A turn takes prompts of one length to outputs of one length, all rows at once: prompts included on
both sides. The step, whose traffic of memory is known, is the time between two tokens of a row.
transformers compiles a step by itself where its cache is static and on a GPU; that is the peer, and
the same without compiling beside it. docs/cuda.md says what was verified on CUDA.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from loadtests.gpu.build import DTYPES
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
from loadtests.gpu.shapes import TITLES, decoders
from loadtests.gpu.timing import Quartiles, Way, interleaved, noise_of, ratios
from loadtests.load.engine import Prompt
from models.networks.gpt import GPTConfig
from service.errors import AttendantError

OURS, STATIC, STATIC_EAGER = "ours", "transformers, static cache", "transformers, not compiled"
PEER_PRECISION = "bf16"
MIN_ROUNDS, MAX_ROUNDS, TINY_ROUNDS = 3, 9, 3
LEAST_COMPILE_S = 30.0  # for each number of rows
CACHE_BYTES = 48 * 2**30  # more than 128 rows of GPT-2 XL need
Generate = Callable[[Sequence[Sequence[int]], int], object]


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
        return cls((1, 32, 8, 128), 128, 64, 512, 640)


def compare(context: Context, name: str, repository: Path, limits: Limits) -> dict[str, Any]:
    """Figures of one decoder: `rows`, each a way with so many rows in flight, and remarks."""
    sizing = Sizing.of(is_tiny=context.is_tiny)
    config = decoders(is_tiny=context.is_tiny)[name]
    findings: dict[str, Any] = {"rows": [], "first_token": [], "left_out": [], "noise": []}
    try:
        with (
            engine(repository, name, **engine_settings(config, sizing, context.device)) as ours,
            peers_of(context, config) as (peers, why),
        ):
            findings["left_out"] += why
            _fill(findings, context, name, (ours, peers), limits)
    except AttendantError as error:
        findings["left_out"].append(f"{TITLES[name]}: {error}")
    return findings


def engine_settings(config: GPTConfig, sizing: Sizing, device: str) -> dict[str, object]:
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


def _fill(
    findings: dict[str, Any],
    context: Context,
    name: str,
    ways: tuple[Engine, dict[str, Generate]],
    limits: Limits,
) -> None:
    """Time all numbers of rows, and the first token, as long as there is time."""
    sizing, (ours, peers) = Sizing.of(is_tiny=context.is_tiny), ways
    for index, num_rows in enumerate(sizing.num_rows):
        what = f"{TITLES[name]}, {num_rows} in flight"
        if context.is_over:
            findings["left_out"].append(f"{what}: the section's time was over.")
            continue
        part = context.until(1 / (len(sizing.num_rows) - index))
        part.say(what)
        for key, values in _compare_rows(part, name, num_rows, ways, limits).items():
            findings[key] += values
        if not index:
            findings["first_token"] = _first_tokens(part, name, ours, peers)


def _compare_rows(
    context: Context,
    name: str,
    num_rows: int,
    engines: tuple[Engine, dict[str, Generate]],
    limits: Limits,
) -> dict[str, list[Any]]:
    (ours, peers), sizing = engines, Sizing.of(is_tiny=context.is_tiny)
    prompts = prompts_of(num_rows, sizing.prompt_tokens, sizing.output_tokens)
    remarks: list[str] = []
    ways: dict[str, Way] = {OURS: lambda: ours.run(prompts, num_rows)}
    for peer, generate in peers.items():
        if peer == STATIC and not context.is_tiny and context.left_s < LEAST_COMPILE_S:
            remarks.append(f"{TITLES[name]}, {num_rows} in flight: no time was left for {peer}.")
            continue
        try:
            _warm(generate, prompts)
        except Exception as error:  # of another library, whose errors have no common class
            remarks.append(f"{TITLES[name]}, {num_rows} in flight: {peer}: {_said(error)}")
            continue
        ways[peer] = _generating(generate, prompts)
    ours.run(prompts, num_rows)  # touches the memory
    ours.steps.clear()
    rounds = {"min_rounds": MIN_ROUNDS, "warm_up": 0}
    rounds["max_rounds"] = TINY_ROUNDS if context.is_tiny else MAX_ROUNDS
    seconds = interleaved(ways, max(0.0, context.left_s), **rounds)
    steps = full_steps(ours.steps, num_rows)
    own = _step_figures(context, name, num_rows, step_intervals_s(steps), limits)
    own["host_share"] = host_share(steps)
    rows = [_row(name, num_rows, way, seconds, sizing) for way in seconds]
    return {
        "rows": [row | (own if row["way"] == OURS else {}) for row in rows],
        "left_out": remarks,
        "noise": noise_of(seconds, f"{TITLES[name]}, {num_rows} in flight"),
    }


def _step_figures(
    context: Context, name: str, num_rows: int, intervals_s: Sequence[float], limits: Limits
) -> dict[str, Any]:
    """The time of a step, and the share of the memory's bandwidth that it takes."""
    sizing = Sizing.of(is_tiny=context.is_tiny)
    config = decoders(is_tiny=context.is_tiny)[name]
    value_bytes = 4 if context.device == "cpu" else 2
    mean_past = sizing.prompt_tokens + sizing.output_tokens // 2
    num_bytes = step_bytes(Sizes.of(config), num_rows, mean_past, value_bytes)
    step = Quartiles.of(intervals_s)
    share = num_bytes / step.median / limits.copy_bytes_per_s
    return {"step_s": step.to_dict(), "step_bytes": num_bytes, "share_of_bandwidth": share}


def _row(
    name: str, num_rows: int, way: str, seconds: dict[str, list[float]], sizing: Sizing
) -> dict[str, Any]:
    own, amount = Quartiles.of(seconds[way]), num_rows * sizing.output_tokens
    over = {
        peer: ratios(seconds[way], seconds[peer]).to_dict()
        for peer in seconds
        if peer not in (OURS, way)
    }
    return {
        "shape": name,
        "in_flight": num_rows,
        "way": way,
        "num_tokens": amount,
        "seconds": own.to_dict(),
        "tokens_per_s": own.per_second(amount).to_dict(),
        "speed_over": over,
    }


def _first_tokens(
    context: Context, name: str, ours: Engine, peers: dict[str, Generate]
) -> list[dict[str, Any]]:
    """The time to the first token of one prompt, by way."""
    sizing = Sizing.of(is_tiny=context.is_tiny)
    (prompt,) = prompts_of(1, sizing.first_token_prompt, 2)
    taken_s: dict[str, list[float]] = {OURS: []}
    ways: dict[str, Way] = {OURS: lambda: taken_s[OURS].append(ours.first_token_s(prompt))}
    if STATIC_EAGER in peers:  # a prompt is not compiled in any case
        eager = peers[STATIC_EAGER]
        ways[STATIC_EAGER] = lambda: eager([prompt.ids], 1)
    seconds = interleaved(ways, min(2.0, max(0.0, context.left_s)), max_rounds=15)
    seconds[OURS] = taken_s[OURS][-len(seconds[OURS]) :]  # without the tokens that follow
    return [
        {"shape": name, "way": way, "prompt_tokens": len(prompt.ids)}
        | {"seconds": Quartiles.of(values).to_dict()}
        for way, values in seconds.items()
    ]


@contextmanager
def peers_of(
    context: Context, config: GPTConfig
) -> Iterator[tuple[dict[str, Generate], list[str]]]:
    """The ways of transformers, or why they are not there; the block's end frees their memory."""
    try:
        model = transformers_model(config, context.device)
    except Exception as error:  # it is absent, or another version
        yield {}, [f"transformers cannot be measured: {_said(error)}"]
        return
    peers: dict[str, Generate] = {STATIC_EAGER: _generate(model, is_compiled=False)}
    if context.device == "cuda":
        peers[STATIC] = _generate(model, is_compiled=True)
    yield peers, []
    del model, peers
    if context.device == "cuda":
        torch.cuda.empty_cache()


def transformers_model(config: GPTConfig, device: str) -> Any:
    """GPT-2 of these sizes with random weights, made on the device."""
    from transformers import AutoModelForCausalLM, GPT2Config

    theirs = GPT2Config(
        vocab_size=config.vocab_size,
        n_positions=config.max_positions,
        n_embd=config.hidden_size,
        n_layer=config.num_layers,
        n_head=config.num_heads,
        n_inner=config.intermediate_size,
        bos_token_id=config.eos_token_id,
        eos_token_id=config.eos_token_id,
    )
    torch.manual_seed(1)
    with torch.device(device):
        dtype = DTYPES[PEER_PRECISION]
        model: Any = AutoModelForCausalLM
        return model.from_config(theirs, dtype=dtype).to(device).eval()


def _generate(model: Any, *, is_compiled: bool) -> Generate:
    """Greedy generation of exactly so many tokens, past any end."""

    @torch.inference_mode()
    def generate(rows: Sequence[Sequence[int]], num_tokens: int) -> object:
        ids = torch.tensor(rows, device=model.device)
        outputs = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            pad_token_id=0,
            cache_implementation="static",
            disable_compile=not is_compiled,
        )
        return outputs.cpu()

    return generate


def _warm(generate: Generate, prompts: Sequence[Prompt]) -> None:
    """Compile, and record CUDA graphs, before anything is timed."""
    for _ in range(2):
        _generating(generate, prompts)()


def _generating(generate: Generate, prompts: Sequence[Prompt]) -> Way:
    ids = [prompt.ids for prompt in prompts]
    (num_tokens,) = {prompt.num_tokens for prompt in prompts}
    return lambda: generate(ids, num_tokens)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
