"""Measure our engine that generates, in process, without gRPC.

    python -m loadtests.compare models
    attendant export build/compare/models/gpt2 --repository build/bench --name fp32
    python -m loadtests.generation overhead --repository build/bench

`loadtests.compare` measures it beside other engines.
"""

import asyncio
import gc
import json
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from service.errors import LoadError
from service.generation.decoder import OnnxDecoder
from service.generation.model import GenerativeModel
from service.generation.observation import EngineObserver
from service.generation.sampling_params import SamplingParams
from service.generation.sequence import RanStep
from service.generation.sequence import Sequence as Sample
from service.generation.speculation import Speculator
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
            told = model.engine._observer  # noqa: SLF001 - ours to look into
            model.engine._observer = _Observer(observed, told)  # noqa: SLF001
        try:
            yield model
        finally:
            await asyncio.to_thread(model.close, 10.0)
            del model
            gc.collect()  # an engine and its thread know each other; its cache is large


class _Observer:
    """Keeps the steps, and tells the metrics."""

    def __init__(self, steps: list[RanStep], metrics: EngineObserver) -> None:
        self._steps = steps
        self._metrics = metrics

    def step_ran(self, step: RanStep) -> None:
        self._steps.append(step)
        self._metrics.step_ran(step)

    def sequence_ended(self, sequence: Sample) -> None:
        self._metrics.sequence_ended(sequence)


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


SCRIPTED_LOGIT = 1e4  # above any that a network gives


class ScriptedDecoder(OnnxDecoder):
    """A network's runs, in their time, but each prompt is continued as written for it."""

    scripts: dict[tuple[int, ...], list[int]]  # by the whole prompt

    def follow(self, scripts: dict[tuple[int, ...], list[int]]) -> None:
        self.scripts = {prompt[:SCRIPT_KEY]: [*prompt, *text] for prompt, text in scripts.items()}
        self._by_slot: dict[int, list[int]] = {}

    def copy(self, source: int, target: int, num_tokens: int, start: int = 0) -> None:
        super().copy(source, target, num_tokens, start)
        self._by_slot[target] = self._by_slot[source]

    def run(
        self,
        first_slot: int,
        rows: Sequence[np.ndarray],
        num_past: Sequence[int],
        num_logits: int = 1,
    ) -> np.ndarray:
        logits = super().run(first_slot, rows, num_past, num_logits)
        for index, (row, past) in enumerate(zip(rows, num_past, strict=True)):
            slot = first_slot + index
            if not past:
                self._by_slot[slot] = self.scripts[tuple(row[:SCRIPT_KEY].tolist())]
            script, end = self._by_slot[slot], past + len(row)
            for back in range(num_logits):
                next_id = script[min(end - back, len(script) - 1)]
                logits[index + num_logits - 1 - back, next_id] = SCRIPTED_LOGIT
        return logits


SCRIPT_KEY = 12  # tokens that tell prompts apart


def scripts_of(kind: str, count: int, num_tokens: int) -> list[tuple[list[int], list[int]]]:
    """Prompts and what follows them, a token per word of Python's help topics.

    `edit`: the prompt again, every 20th word another. `extract`: every other sentence of it.
    `other`: the text of another topic. `random`: no text at all.
    """
    texts = [text.split() for text in topics.values()]
    texts = [words for words in texts if len(words) > 2 * num_tokens + 40]
    ids: dict[str, int] = {}
    found = []
    for index in range(count):
        words, others = (texts[place % len(texts)] for place in (2 * index, 2 * index + 1))
        if kind == "random":
            random = np.random.default_rng(index)
            tokens = random.integers(1, 50_000, (2, 2 * num_tokens)).tolist()
            found.append((tokens[0], tokens[1][:num_tokens]))
            continue
        prompt = words[: 2 * num_tokens]
        if kind == "edit":
            text = [f"{word} edited" if i % 20 == 19 else word for i, word in enumerate(prompt)]
        elif kind == "extract":
            sentences = " ".join(prompt).split(". ")
            text = [word for each in sentences[1::2] for word in f"{each}.".split()]
        else:
            text = others
        text = (text + others)[:num_tokens]
        pair = ([1 + ids.setdefault(word, len(ids)) for word in part] for part in (prompt, text))
        found.append((next(pair), next(pair)))
    return found


@app.command()
def speculation(
    repository: Repository,
    model: Model = "fp32",
    in_flight: Annotated[int, typer.Option(min=1, help="Requests at once.")] = 1,
    num_tokens: Annotated[int, typer.Option(min=8, help="Of output.")] = 96,
    draft_tokens: Annotated[int, typer.Option(min=1, help="--max-draft-tokens.")] = 15,
    rounds: Rounds = 3,
) -> None:
    """Time without drafts over time with them, by what is said; the network's runs are real."""
    table = Table("text", "without, tokens/s", "with", "ratio (range)", "drafted that are said")
    kinds = ("edit", "extract", "other", "random")
    found = asyncio.run(
        _speculation(repository, model, kinds, in_flight, num_tokens, draft_tokens, rounds)
    )
    for kind, (pairs, steps) in found.items():
        ratios = sorted(off / on for off, on in pairs)
        count = num_tokens * in_flight
        speeds = (f"{count / statistics.median(each):.0f}" for each in zip(*pairs, strict=True))
        drafted, agreed = (sum(getattr(s, n) for s in steps) for n in ("num_drafted", "num_agreed"))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        share = f"{agreed} of {drafted} in {rounds} rounds"
        table.add_row(kind, *speeds, spread, share)
    console.print(table)


async def _speculation(
    repository: Path,
    name: str,
    kinds: Sequence[str],
    in_flight: int,
    num_tokens: int,
    draft_tokens: int,
    rounds: int,
) -> dict[str, tuple[list[tuple[float, float]], list[RanStep]]]:
    """Of each kind, seconds without and with drafts, and the steps with."""
    found: dict[str, tuple[list[tuple[float, float]], list[RanStep]]] = {}
    steps: list[RanStep] = []
    async with serving(repository, name, steps, prefix_reuse=False) as model:
        engine = model.engine
        decoder = engine._decoder  # noqa: SLF001 - ours to look into
        decoder.__class__ = ScriptedDecoder
        assert isinstance(decoder, ScriptedDecoder)
        for index in range(rounds + 1):
            for kind in kinds:
                pairs = scripts_of(kind, in_flight, num_tokens)
                decoder.follow({tuple(prompt): text for prompt, text in pairs})
                requests = [Ask(prompt, num_tokens) for prompt, _ in pairs]
                kept, all_steps = found.setdefault(kind, ([], []))
                seconds: dict[int, float] = {}
                for most in (0, draft_tokens) if index % 2 else (draft_tokens, 0):
                    engine._scheduler._speculator = Speculator(most)  # noqa: SLF001
                    steps.clear()
                    seconds[most] = await run_all(model, requests, in_flight)
                    all_steps += steps if index and most else []
                if index:
                    kept.append((seconds[0], seconds[draft_tokens]))
    return found


@app.command()
def arrivals(
    repository: Repository,
    model: Model = "fp32",
    rate: Annotated[list[float] | None, typer.Option(help="Requests per second.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Of arrivals at each rate.")] = 15.0,
    group: Annotated[int, typer.Option(min=1, help="Requests of a static group.")] = 32,
    wait_ms: Annotated[float, typer.Option(min=0, help="For a static group to fill.")] = 100.0,
    way: Annotated[list[str] | None, typer.Option(help="continuous, static.")] = None,
) -> None:
    """Continuous and static batching under Poisson arrivals: latency per token by rate.

    Outputs of 8 to 200 tokens, as many short as long ones by logarithm; prompts of 16 to 128. A
    request's time from its arrival to its end is divided by its tokens. Static: a group starts
    when the last one is done and it is full, or its first request has waited long enough; whoever
    is done is answered at once.
    """
    ways = way or ["continuous", "static"]
    table = Table("requests/s", *(f"{name}, p50, p95, ms per token" for name in ways))
    found = asyncio.run(
        _arrivals(repository, model, rate or [1, 2, 4], seconds, group, wait_ms / 1e3, ways)
    )
    for each, by_way in found.items():
        cells = (
            f"{np.percentile(by_way[name], 50):.0f}, {np.percentile(by_way[name], 95):.0f}"
            for name in ways
        )
        table.add_row(f"{each:g}", *cells)
    console.print(table)


def mixed_asks(count: int, seed: int) -> list[Ask]:
    """Outputs log-uniform from 8 to 200 tokens."""
    generator = np.random.default_rng(seed)
    outputs = np.exp(generator.uniform(np.log(8), np.log(201), count)).astype(int)
    return [
        Ask(ask.prompt, int(num_tokens))
        for ask, num_tokens in zip(asks(count, seed, (16, 128), (1, 1)), outputs, strict=True)
    ]


async def _arrivals(
    repository: Path,
    name: str,
    rates: Sequence[float],
    seconds: float,
    group: int,
    wait_s: float,
    ways: Sequence[str],
) -> dict[float, dict[str, list[float]]]:
    found: dict[float, dict[str, list[float]]] = {}
    async with serving(repository, name, prefix_reuse=False) as model:
        await run_all(model, mixed_asks(group, 1), group)  # touches all memory there is
        for rate in rates:
            gaps_s = np.random.default_rng(3).exponential(1 / rate, int(rate * seconds))
            requests = mixed_asks(len(gaps_s), 7)
            for way in ways:
                if way == "static":
                    work = _run_static(model, requests, gaps_s, group, wait_s)
                else:
                    work = _run_at_once(model, requests, gaps_s)
                times_s = await work
                found.setdefault(rate, {})[way] = [
                    1e3 * time_s / ask.num_tokens
                    for time_s, ask in zip(times_s, requests, strict=True)
                ]
    return found


async def _run_at_once(
    model: GenerativeModel, requests: Sequence[Ask], gaps_s: np.ndarray
) -> list[float]:
    """Each request when it arrives; returns seconds from arrival to end."""

    async def one(ask: Ask, due_s: float) -> float:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        await run_one(model, ask)
        return time.monotonic() - due_s

    dues_s = time.monotonic() + np.cumsum(gaps_s)
    return list(await asyncio.gather(*map(one, requests, dues_s.tolist())))


async def _run_static(
    model: GenerativeModel,
    requests: Sequence[Ask],
    gaps_s: np.ndarray,
    group: int,
    wait_s: float,
) -> list[float]:
    """Group after group, of those that have come."""
    dues_s: list[float] = (time.monotonic() + np.cumsum(gaps_s)).tolist()
    times_s: list[float] = []

    async def one(index: int) -> float:
        await run_one(model, requests[index])
        return time.monotonic() - dues_s[index]

    first = 0
    while first < len(requests):
        full_s = dues_s[min(first + group, len(requests)) - 1]
        starts_s = min(full_s, dues_s[first] + wait_s)
        await asyncio.sleep(max(0.0, starts_s - time.monotonic()))
        now_s = time.monotonic()
        last = first + 1
        while last < min(first + group, len(requests)) and dues_s[last] <= now_s:
            last += 1
        times_s += await asyncio.gather(*map(one, range(first, last)))
        first = last
    return times_s


if __name__ == "__main__":
    app()
