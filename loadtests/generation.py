"""Measure generation beside what else could be done with the same weights.

    python -m loadtests.random_gpt2 build/random-gpt2
    attendant export build/random-gpt2 --repository build/bench --name fp32
    python -m loadtests.generation compare --repository build/bench --checkpoint build/random-gpt2

`compare` runs, round after round, A B C A B C ..., over the same requests (prompts of 16 to 128
random tokens, 16 to 64 tokens of output, greedy):

    continuous    our engine: sequences join and leave at every step
    static        our engine, but the next group starts when the last one is done
    transformers  `generate`, in groups, padded to the longest; float32, and bfloat16 where asked
    peers         other programs, see loadtests/genai_worker.py: --peer NAME="COMMAND LINE"

A group is as large as the concurrency. Only tokens that were asked for count. The other commands
measure our engine alone: `latency`, `overhead`, `prefix`. All in process, without gRPC.
"""

import asyncio
import gc
import json
import shlex
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from service.errors import LoadError
from service.generation.decoder import OnnxDecoder
from service.generation.model import GenerativeModel
from service.generation.sampling_params import SamplingParams
from service.generation.sequence import RanStep
from service.generation.sequence import Sequence as Sample
from service.loading import Openers, load_model, start_model
from service.metrics import Metrics
from service.model_files import ModelSource
from service.models import Host
from service.runtime import Binding
from service.settings import Settings

app = typer.Typer(help="Measure generation.")
console = Console()

Repository = Annotated[Path, typer.Option(help="Where the exported models are.")]
Model = Annotated[str, typer.Option(help="A generative model of the repository.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count.")]
KV_CACHE_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: a prompt of token ids, and how many tokens to generate."""

    prompt: list[int]
    num_tokens: int


def asks(count: int, seed: int, prompts: tuple[int, int], outputs: tuple[int, int]) -> list[Ask]:
    """Random requests; both bounds are included."""
    generator = np.random.default_rng(seed)
    return [
        Ask(
            generator.integers(1, 50_000, generator.integers(prompts[0], prompts[1] + 1)).tolist(),
            int(generator.integers(outputs[0], outputs[1] + 1)),
        )
        for _ in range(count)
    ]


@asynccontextmanager
async def serving(
    repository: Path, name: str, observed: list[RanStep] | None = None, **settings: object
) -> AsyncIterator[GenerativeModel]:
    """A model of the repository with its engine, in this process."""
    values = {"kv_cache_bytes": KV_CACHE_BYTES, **settings}
    chosen = Settings(model_repository=repository, **values)  # type: ignore[arg-type]
    loaded = load_model(ModelSource.of(repository, name), chosen, Openers())
    with ThreadPoolExecutor(1) as executor:
        number = loaded.versions[-1].number
        host = Host(chosen, Metrics(), executor)
        metrics = host.metrics.for_model(name, number)
        model = start_model(loaded, number, metrics, host, lambda: None)
        if not isinstance(model, GenerativeModel):
            raise LoadError(f"{name} does not generate")
        if observed is not None:
            model.engine._observer = _Observer(observed)  # noqa: SLF001 - ours to look into
        try:
            yield model
        finally:
            await asyncio.to_thread(model.close, 10.0)
            del model
            gc.collect()  # an engine and its thread know each other; its cache is large


class _Observer:
    def __init__(self, steps: list[RanStep]) -> None:
        self._steps = steps

    def step_ran(self, step: RanStep) -> None:
        self._steps.append(step)

    def sequence_ended(self, sequence: Sample) -> None:
        pass


async def run_one(model: GenerativeModel, ask: Ask, **params: object) -> Sample:
    """Generate, and return the sequence with its timings."""
    wanted = SamplingParams.from_mapping(
        {"temperature": 0.0, "max_tokens": ask.num_tokens, "ignore_eos": True, **params}
    )
    started_s = time.monotonic()
    async with model.generate(ask.prompt, wanted, received_s=started_s) as generation:
        async for _ in generation:
            pass
    return generation.sequences[0]


async def run_all(
    model: GenerativeModel, requests: Sequence[Ask], concurrency: int, **params: object
) -> float:
    """Closed loop: so many requests in flight; returns seconds."""
    waiting = iter(requests)

    async def work() -> None:
        for ask in waiting:
            await run_one(model, ask, **params)

    started_s = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    return time.perf_counter() - started_s


async def run_groups(model: GenerativeModel, requests: Sequence[Ask], concurrency: int) -> float:
    """Group after group, as static batching would."""
    started_s = time.perf_counter()
    for start in range(0, len(requests), concurrency):
        await asyncio.gather(
            *(run_one(model, ask) for ask in requests[start : start + concurrency])
        )
    return time.perf_counter() - started_s


Way = Callable[[Sequence[Ask], int], float]  # requests, concurrency -> seconds


def transformers_way(folder: Path, dtype: str) -> Way:
    """`generate` of transformers, left-padded groups."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))

    def run(requests: Sequence[Ask], concurrency: int) -> float:
        started_s = time.perf_counter()
        for start in range(0, len(requests), concurrency):
            group = requests[start : start + concurrency]
            longest = max(len(ask.prompt) for ask in group)
            ids = torch.zeros(len(group), longest, dtype=torch.long)
            mask = torch.zeros_like(ids)
            for row, ask in enumerate(group):
                ids[row, longest - len(ask.prompt) :] = torch.tensor(ask.prompt)
                mask[row, longest - len(ask.prompt) :] = 1
            num_tokens = max(ask.num_tokens for ask in group)
            with torch.inference_mode():
                model.generate(  # type: ignore[misc] # its own mixin confuses mypy
                    ids,
                    attention_mask=mask,
                    do_sample=False,
                    max_new_tokens=num_tokens,
                    min_new_tokens=num_tokens,
                    pad_token_id=50_256,
                )
        return time.perf_counter() - started_s

    return run


class Peer:
    """A program that takes requests as JSON on a line of stdin, and answers with its seconds."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - given by who runs this
            shlex.split(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, requests: Sequence[Ask], concurrency: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"concurrency": concurrency, "requests": [asdict(ask) for ask in requests]}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return float(json.loads(self._process.stdout.readline())["seconds"])


@app.command()
def compare(
    repository: Repository,
    checkpoint: Annotated[
        Path | None, typer.Option(help="The same weights for transformers; without it, ours alone.")
    ] = None,
    model: Annotated[list[str] | None, typer.Option(help="Models of the repository.")] = None,
    concurrency: Annotated[list[int] | None, typer.Option(help="Requests in flight.")] = None,
    peer: Annotated[list[str] | None, typer.Option(help='NAME="COMMAND LINE" of a peer.')] = None,
    equal: Annotated[bool, typer.Option(help="Every prompt 64 tokens, every output 48.")] = False,
    bfloat16: Annotated[bool, typer.Option(help="transformers in bfloat16 too.")] = True,
    rounds: Rounds = 3,
    requests_per_slot: Annotated[int, typer.Option(help="Requests per one in flight.")] = 2,
) -> None:
    """Tokens per second, and ratios over the first way, by concurrency."""
    names = model or ["fp32"]
    levels = concurrency or [1, 8, 32]
    others: dict[str, Way] = {}
    if checkpoint is not None:
        for dtype in ("float32", "bfloat16") if bfloat16 else ("float32",):
            others[f"transformers, {dtype}"] = transformers_way(checkpoint, dtype)
    for named in peer or []:
        name, _, command = named.partition("=")
        others[name] = Peer(command)
    work = {level: _asks_for(level, requests_per_slot, is_equal=equal) for level in levels}
    seconds = asyncio.run(_compare(repository, names, others, work, rounds))
    for level, ways in seconds.items():
        num_tokens = sum(ask.num_tokens for ask in work[level])
        _show_ratios(f"{level} in flight, {num_tokens} tokens", ways, num_tokens)


def _asks_for(level: int, requests_per_slot: int, *, is_equal: bool) -> list[Ask]:
    count = max(2, level * requests_per_slot)
    prompts, outputs = ((64, 64), (48, 48)) if is_equal else ((16, 128), (16, 64))
    return asks(count, level, prompts, outputs)


async def _compare(
    repository: Path,
    names: Sequence[str],
    others: Mapping[str, Way],
    work: Mapping[int, list[Ask]],
    rounds: int,
) -> dict[int, dict[str, list[float]]]:
    seconds: dict[int, dict[str, list[float]]] = {level: {} for level in work}

    def keep(level: int, way: str, duration_s: float, index: int) -> None:
        if index:  # the first round warms our engines up: it touches all memory they will use
            seconds[level].setdefault(way, []).append(duration_s)

    async with AsyncExitStack() as stack:
        engines = {
            name: await stack.enter_async_context(serving(repository, name, prefix_reuse=False))
            for name in names
        }
        progress = stack.enter_context(Progress(console=Console(stderr=True)))
        task = progress.add_task("rounds", total=(rounds + 1) * len(work))
        for index in range(rounds + 1):
            for level, requests in work.items():
                for name, engine in engines.items():
                    duration_s = await run_all(engine, requests, level)
                    keep(level, f"continuous, {name}", duration_s, index)
                duration_s = await run_groups(engines[names[0]], requests, level)
                keep(level, f"static, {names[0]}", duration_s, index)
                for way, run in others.items() if index else ():
                    keep(level, way, await asyncio.to_thread(run, requests, level), index)
                progress.advance(task)
    return seconds


def _show_ratios(title: str, ways: dict[str, list[float]], num_tokens: int) -> None:
    table = Table("way", "tokens/s (median)", "over the first", "range", title=title)
    first = next(iter(ways.values()))
    for way, durations in ways.items():
        ratios = sorted(a / b for a, b in zip(first, durations, strict=True))
        median_s = statistics.median(durations)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        table.add_row(
            way, f"{num_tokens / median_s:.0f}", f"{statistics.median(ratios):.2f}", spread
        )
    console.print(table)


@app.command()
def overhead(
    repository: Repository,
    model: Model = "fp32",
    rows: Annotated[int, typer.Option(min=1, help="Sequences at once.")] = 32,
    num_tokens: Annotated[int, typer.Option(min=2, help="Tokens of each.")] = 64,
) -> None:
    """Share of the time of decoding steps that is not ONNX Runtime's call, metrics included."""
    table = Table("sampling", "step, ms", "ONNX Runtime, ms", "outside", "outside, share", "p90")
    kinds: dict[str, dict[str, object]] = {
        "greedy": {},
        "temperature": {"temperature": 1.0, "seed": 1},
        "top_k 50, top_p 0.9": {"temperature": 1.0, "top_k": 50, "top_p": 0.9, "seed": 1},
    }
    for kind, (step_ms, run_ms) in asyncio.run(
        _steps_of(repository, model, rows, num_tokens, kinds)
    ).items():
        outside_ms = step_ms - run_ms
        cells = (f"{np.median(ms):.2f}" for ms in (step_ms, run_ms, outside_ms))
        shares = outside_ms / step_ms
        table.add_row(kind, *cells, f"{np.median(shares):.1%}", f"{np.percentile(shares, 90):.1%}")
    console.print(table)


async def _steps_of(
    repository: Path,
    name: str,
    rows: int,
    num_tokens: int,
    kinds: Mapping[str, dict[str, object]],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of each kind's decoding steps of so many rows: from call to call, and in the call, ms."""
    steps: list[RanStep] = []
    requests = asks(rows, 5, (32, 64), (num_tokens, num_tokens))
    found = {}
    async with serving(repository, name, steps) as model:
        times_s = _time_calls(model)
        for kind, params in kinds.items():
            steps.clear()
            times_s.clear()
            await run_all(model, requests, rows, **params)
            calls = np.array(times_s)
            is_full = [step.phase == "decode" and step.num_rows == rows for step in steps]
            places = np.flatnonzero(is_full[:-1])[1:-1]  # not those beside others
            step_s = calls[places + 1, 0] - calls[places, 0]
            found[kind] = (step_s * 1e3, (calls[places, 1] - calls[places, 0]) * 1e3)
    return found


def _time_calls(model: GenerativeModel) -> list[tuple[float, float]]:
    """Where the beginning and end of each of a decoder's calls will be, in seconds."""
    times_s: list[tuple[float, float]] = []

    class Timed(Binding):
        def run(self) -> None:
            started_s = time.perf_counter()
            super().run()
            times_s.append((started_s, time.perf_counter()))

    decoder = model.engine._decoder  # noqa: SLF001 - ours to look into
    assert isinstance(decoder, OnnxDecoder)
    session = decoder._session  # noqa: SLF001
    session.bind = lambda *arrays: Timed(session._session, *arrays)  # type: ignore[method-assign] # noqa: SLF001
    return times_s


@app.command()
def latency(
    repository: Repository,
    model: Model = "fp32",
    load: Annotated[float, typer.Option(min=0.01, max=1.0, help="Share of capacity.")] = 0.7,
    count: Annotated[int, typer.Option(min=8, help="Requests.")] = 96,
) -> None:
    """Time to first token and between tokens under Poisson arrivals."""
    asyncio.run(_latency(repository, model, load, count))


async def _latency(repository: Path, name: str, load: float, count: int) -> None:
    requests = asks(count, 7, (16, 128), (16, 64))
    steps: list[RanStep] = []
    async with serving(repository, name, steps, prefix_reuse=False) as model:
        await run_all(model, requests[:4], 4)
        capacity = len(requests) / await run_all(model, requests, 32)
        steps.clear()
        gaps = np.random.default_rng(3).exponential(1 / (load * capacity), count)
        tasks = []
        due_s = time.monotonic()
        for ask, gap_s in zip(requests, gaps, strict=True):
            due_s += gap_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            tasks.append(asyncio.create_task(run_one(model, ask)))
        samples = await asyncio.gather(*tasks)
    first_s = [sample.timings.time_to_first_token_s for sample in samples]
    between_s = [value for step in steps for value in step.inter_token_s]
    table = Table("", "p50, ms", "p90, ms", "p99, ms", title=f"{load:.0%} of {capacity:.2f}/s")
    for what, values in (("time to first token", first_s), ("between tokens", between_s)):
        marks = (f"{np.percentile(values, mark) * 1e3:.0f}" for mark in (50, 90, 99))
        table.add_row(what, *marks)
    console.print(table)


@app.command()
def prefix(
    repository: Repository,
    model: Model = "fp32",
    prefix_tokens: Annotated[int, typer.Option(min=16, help="What prompts share.")] = 400,
    own_tokens: Annotated[int, typer.Option(min=1, help="What each has of its own.")] = 16,
    rounds: Rounds = 9,
) -> None:
    """Time to first token of a prompt that begins like an earlier one."""
    asyncio.run(_prefix(repository, model, prefix_tokens, own_tokens, rounds))


async def _prefix(repository: Path, name: str, shared: int, own: int, rounds: int) -> None:
    generator = np.random.default_rng(11)
    beginning = generator.integers(1, 50_000, shared).tolist()
    times: dict[bool, list[float]] = {False: [], True: []}
    async with (
        serving(repository, name, prefix_reuse=False) as without,
        serving(repository, name, prefix_reuse=True) as reusing,
    ):
        for _ in range(rounds + 1):
            for is_reusing, engine in ((False, without), (True, reusing)):
                ask = Ask(beginning + generator.integers(1, 50_000, own).tolist(), 2)
                sample = await run_one(engine, ask)
                times[is_reusing].append(sample.timings.time_to_first_token_s)
    pairs = list(zip(times[False][1:], times[True][1:], strict=True))
    ratios = sorted(a / b for a, b in pairs)
    found = {
        "without_reuse_ms": round(statistics.median(a for a, _ in pairs) * 1e3, 1),
        "with_reuse_ms": round(statistics.median(b for _, b in pairs) * 1e3, 1),
        "times_shorter": round(statistics.median(ratios), 2),
        "range": [round(ratios[0], 2), round(ratios[-1], 2)],
    }
    console.print_json(json.dumps(found))


@app.command()
def runs(
    repository: Repository,
    model: Model = "fp32",
    past_tokens: Annotated[int, typer.Option(min=1, help="In the cache before the run.")] = 256,
    rounds: Rounds = 15,
) -> None:
    """What a run costs: several tokens of one row, with the logits of all; a token of each row."""
    found = asyncio.run(_runs(repository, model, past_tokens, rounds))
    table = Table("tokens", "of one row, ms", "of as many rows, ms", title=model)
    for count, (one_row, many_rows) in found.items():
        cells = (f"{statistics.median(ms):.1f}" if ms else "" for ms in (one_row, many_rows))
        table.add_row(str(count), *cells)
    console.print(table)


async def _runs(
    repository: Path, name: str, past_tokens: int, rounds: int
) -> dict[int, tuple[list[float], list[float]]]:
    counts = (*range(1, 10), 12, 16, 24, 32, 64, 72, 96, 128, 136, 160)
    found: dict[int, tuple[list[float], list[float]]] = {count: ([], []) for count in counts}
    async with serving(repository, name) as model:
        decoder = model.engine._decoder  # noqa: SLF001 - idle, so it may be used here
        most_rows = min(decoder.num_slots, 32)
        for index in range(rounds + 1):
            for count, (one_row, many_rows) in found.items():
                ids = np.arange(count) + 1
                num_logits = count if count <= decoder.max_logits_per_row else 1
                started_s = time.perf_counter()
                decoder.run(0, [ids], [past_tokens], num_logits)
                ran_s = time.perf_counter()
                if count <= most_rows:
                    decoder.run(0, [ids[:1]] * count, [past_tokens] * count)
                    many_rows += [(time.perf_counter() - ran_s) * 1e3] * (index > 0)
                one_row += [(ran_s - started_s) * 1e3] * (index > 0)
    return found


if __name__ == "__main__":
    app()
