"""Tokens per second of decoders: our engine beside transformers' `generate` with a static cache.

A turn takes prompts of one length to outputs of one length, all rows at once: prompts included on
both sides. The step, whose traffic of memory is known, is the time between two tokens of a row.
transformers compiles a step by itself where its cache is static and on a GPU.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from loadtests.gpu.context import Context
from loadtests.gpu.counts import Sizes, cache_bytes, step_bytes
from loadtests.gpu.models import SEED, SHAPES, Model, timed_graphs
from loadtests.gpu.timing import (
    DTYPES,
    MAX_ROUNDS,
    TINY_ROUNDS,
    MachineLimits,
    Way,
    failing_alone,
    interleaved,
    ratios,
    write_rows,
)
from loadtests.load.closed_loop import closed_loop
from loadtests.load.engine import Prompt, run_one, serving
from models.networks.llama import LlamaConfig
from service.generation.sequence import Sequence as Sample
from service.records import RanStep
from service.serving.generative_model import GenerativeModel

# Settings of the server for each of our ways.
OURS: dict[str, dict[str, object]] = {
    "ours, paged": {"cache_layout": "paged"},
    "ours, paged, CUDA graphs": {"cache_layout": "paged", "cuda_graphs": True},
    "ours, slots": {"cache_layout": "slots"},
}
STATIC, COMPILED = "transformers, static cache", "transformers, compiled, static cache"
LEAST_BANDWIDTH_SHARE, MOST_HOST_SHARE, LEAST_OVER_STATIC = 0.7, 0.05, 1.5
CACHE_BYTES = 24 * 2**30  # of each way: 128 rows of GPT-2 XL need 20
NUM_IDS = 256  # prompts are of ids that every vocabulary has


@dataclass(frozen=True, slots=True)
class Sizing:
    """The loads of one mode of the check."""

    num_rows: tuple[int, ...]  # in flight, the most important first
    many: int  # of them, at which goals of batches are
    prompt_tokens: int
    output_tokens: int
    max_context: int

    @classmethod
    def of(cls, *, is_tiny: bool) -> "Sizing":
        return cls((1, 4), 4, 8, 8, 64) if is_tiny else cls((1, 32, 8, 128), 32, 128, 64, 520)


@dataclass(frozen=True, slots=True)
class Engine:
    """A loaded model in this process, and the steps that it ran."""

    model: GenerativeModel
    steps: list[RanStep]
    loop: asyncio.AbstractEventLoop

    def run(self, prompts: Sequence[Prompt], num_rows: int) -> list[Sample]:
        """All prompts, `num_rows` of them in flight, to their last tokens."""
        samples: list[Sample] = []

        async def one(prompt: Prompt) -> None:
            samples.append(await run_one(self.model, prompt))

        self.loop.run_until_complete(closed_loop(prompts, num_rows, one))
        return samples


@contextmanager
def engine(exported: Model, **settings: object) -> Iterator[Engine]:
    """An exported generative model; its memory is free again after the block.

    Raises `LoadError`.
    """
    loop, stack, steps = asyncio.new_event_loop(), AsyncExitStack(), list[RanStep]()
    try:
        chosen = {"prefix_reuse": False, **settings}
        opened = serving(exported.repository, exported.name, steps, **chosen)
        yield Engine(loop.run_until_complete(stack.enter_async_context(opened)), steps, loop)
    finally:
        loop.run_until_complete(stack.aclose())
        loop.close()


def prompts_of(count: int, num_tokens: int, num_outputs: int, number: int = 0) -> list[Prompt]:
    """Prompts of random ids, all of one length; others for another number."""
    generator = np.random.default_rng(number + 1)
    ids = generator.integers(1, NUM_IDS, (count, num_tokens))
    return [Prompt(each, num_outputs) for each in ids.tolist()]


def measure(
    context: Context, model: Model, limits: MachineLimits, time_s: float, *, is_compiled: bool
) -> None:
    """Rows of one decoder with all numbers of rows in flight."""
    sizing, ends_s = Sizing.of(is_tiny=context.is_tiny), time.monotonic() + time_s
    layouts = [layout or "slots" for _, layout in timed_graphs(model.name, context.device)]
    settings = engine_settings(context, model.name)
    with ExitStack() as stack, context.parts.timed("open and run"):
        ours: dict[str, Engine] = {}
        for way, own in OURS.items():
            if own["cache_layout"] in layouts:
                with failing_alone(context, f"{model.name}, {way}, is opened"):
                    ours[way] = stack.enter_context(engine(model, **settings, **own))
        peer = stack.enter_context(_peer(context, model.name, is_compiled=is_compiled))
        for index, num_rows in enumerate(sizing.num_rows):
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                beside = f" beside {COMPILED}" if is_compiled else ""
                context.leave_out(f"{model.name}, {num_rows} in flight{beside}: no time was left")
                continue
            load = prompts_of(num_rows, sizing.prompt_tokens, sizing.output_tokens)
            time_s = left_s / (len(sizing.num_rows) - index)
            _measure_rows(context, model, limits, ours, peer, load, time_s)


def engine_settings(context: Context, name: str) -> dict[str, object]:
    """Settings of the server with which all rows run at once."""
    sizing, config = Sizing.of(is_tiny=context.is_tiny), SHAPES[name]
    num_tokens = min(sizing.max_context, config.max_positions)
    value_bytes, most = (4 if context.device == "cpu" else 2), max(sizing.num_rows)
    return {
        "device": context.device,
        "max_running_sequences": most,
        "max_context_tokens": num_tokens,
        "kv_cache_bytes": min(
            cache_bytes(Sizes.of(config), most, num_tokens, value_bytes), CACHE_BYTES
        ),
    }


def _measure_rows(
    context: Context,
    model: Model,
    limits: MachineLimits,
    ours: dict[str, Engine],
    peer: dict[str, Callable[[Sequence[Prompt]], object]],
    prompts: list[Prompt],
    time_s: float,
) -> None:
    num_rows, ends_s = len(prompts), time.monotonic() + time_s
    ways: dict[str, Way] = {way: partial(own.run, prompts, num_rows) for way, own in ours.items()}
    ways |= {way: partial(generate, prompts) for way, generate in peer.items()}
    for way, run in list(ways.items()):
        try:
            run()  # touches the memory
            if way in peer:
                run()  # CUDA graphs are recorded in the second
        except Exception as error:  # of any library: the other ways are timed all the same
            del ways[way]
            said = f"{model.name}, {num_rows} in flight, {way}: {str(error)[:300]}"
            if way in ours:
                context.check(f"{model.name}, {way}, runs {num_rows} rows", False, said)
            else:
                context.leave_out(said)
    if not any(way in ours for way in ways):
        return
    for own in ours.values():
        own.steps.clear()
    max_rounds = TINY_ROUNDS if context.is_tiny else MAX_ROUNDS
    left_s = max(0.0, ends_s - time.monotonic())
    seconds = interleaved(ways, left_s, max_rounds=max_rounds, warm_up=0)
    figures = {way: _steps(context, model, limits, own, prompts) for way, own in ours.items()}
    where = {"model": model.name, "in flight": num_rows}
    amount = (num_rows * prompts[0].num_tokens, "tokens/s")
    best = write_rows(
        *(context, "Decoders, prompts included", where, seconds, amount),
        lambda way, _: {key: f"{value:.3g}" for key, value in figures.get(way, {}).items()},
    )
    title, step = f"{model.name}, {num_rows} in flight, {best}", figures[best]
    if COMPILED in seconds and num_rows == Sizing.of(is_tiny=context.is_tiny).many:
        over = ratios(seconds[best], seconds[COMPILED]).median
        context.at_least(f"{title}: over {COMPILED}", over, LEAST_OVER_STATIC, kind="goal")
    if not step or COMPILED in seconds:
        return
    if num_rows == 1:
        what = f"{title}: share of the memory bandwidth"
        context.at_least(what, step["share of the bandwidth"], LEAST_BANDWIDTH_SHARE, kind="goal")
    if num_rows == Sizing.of(is_tiny=context.is_tiny).many:
        what = f"{title}: share of a step outside of the decoder's run"
        context.at_most(what, step["outside the run"], MOST_HOST_SHARE, kind="goal")


def _steps(
    context: Context, model: Model, limits: MachineLimits, own: Engine, prompts: Sequence[Prompt]
) -> dict[str, float]:
    """The median step, its share of the memory's bandwidth, and of time outside of the run.

    Of decoding steps that had all rows but the first, which waited for a prompt; empty where there
    are none. A run is from the filling of its inputs to its logits, or candidates, on the host.
    """
    num_rows, value_bytes = len(prompts), 4 if context.device == "cpu" else 2
    full = [step for step in own.steps if step.phase == "decode" and step.num_rows == num_rows][1:]
    steps = [
        (step.run_s, statistics.median(step.inter_token_s)) for step in full if step.inter_token_s
    ]
    if not steps:
        return {}
    step_s = statistics.median(interval_s for _, interval_s in steps)
    past = len(prompts[0].ids) + prompts[0].num_tokens // 2
    num_bytes = step_bytes(Sizes.of(SHAPES[model.name]), num_rows, past, value_bytes)
    return {
        "step, ms": step_s * 1e3,
        "share of the bandwidth": num_bytes / step_s / limits.copy_bytes_per_s,
        "outside the run": statistics.median(1 - run_s / interval_s for run_s, interval_s in steps),
    }


@contextmanager
def _peer(
    context: Context, name: str, *, is_compiled: bool
) -> Iterator[dict[str, Callable[[Sequence[Prompt]], object]]]:
    """The way of transformers, or why it is not there."""
    if context.run.peers == "none":
        yield {}
        return
    try:
        model = _transformers_model(name, context.device)
    except Exception as error:  # it is absent, or another version
        said = f"{type(error).__name__}: {str(error)[:300]}"
        context.leave_out(f"{name} beside transformers, which cannot be measured: {said}")
        yield {}
        return
    generate = partial(_generate, model, is_compiled and context.device == "cuda")
    yield {COMPILED if is_compiled else STATIC: generate}


def _transformers_model(name: str, device: str) -> Any:
    """A decoder of these sizes with random weights, made on the device."""
    import transformers

    torch.compiler.reset()  # it compiles the same code a few times only, and then goes on without
    torch.manual_seed(SEED)
    config: Any = SHAPES[name]
    ends = {"bos_token_id": config.eos_token_ids[0], "eos_token_id": config.eos_token_ids[0]}
    sizes = {"vocab_size": config.vocab_size, "hidden_size": config.hidden_size}
    if isinstance(config, LlamaConfig):
        theirs: Any = transformers.LlamaConfig(
            max_position_embeddings=config.max_positions,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            tie_word_embeddings=config.is_tied,
            **sizes,
            **ends,
        )
    else:
        theirs = transformers.GPT2Config(
            n_positions=config.max_positions,
            n_layer=config.num_layers,
            n_head=config.num_heads,
            n_inner=config.intermediate_size,
            **sizes,
            **ends,
        )
    auto: Any = transformers.AutoModelForCausalLM
    with torch.device(device):
        return auto.from_config(theirs, dtype=DTYPES["bf16"]).to(device).eval()


@torch.inference_mode()
def _generate(model: Any, is_compiled: bool, prompts: Sequence[Prompt]) -> object:
    """Greedy generation of a fixed number of tokens, past any end."""
    ids = torch.tensor([prompt.ids for prompt in prompts], device=model.device)
    (num_tokens,) = {prompt.num_tokens for prompt in prompts}
    return model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=num_tokens,
        min_new_tokens=num_tokens,
        pad_token_id=0,
        cache_implementation="static",
        disable_compile=not is_compiled,
    ).cpu()
