"""Measure our engine that generates, in process, without gRPC.

    python -m loadtests.compare models
    attendant export build/compare/models/gpt2 --repository build/bench --name fp32
    python -m loadtests.measure.generation overhead --repository build/bench

`loadtests.compare` measures it beside other engines.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.engine import Prompt, random_prompts, run_all, run_one, serving, vocab_size_of
from loadtests.load.turns import times_faster, turns
from service.generation.decoders.decoder import OnnxDecoder
from service.generation.engine import GenerationEngine
from service.generation.sequence import Sequence as Sample
from service.records import RanStep
from service.runtime.binding import Binding
from service.serving.generative_model import GenerativeModel

app = typer.Typer(help="Measure generation.")
console = Console()

Repository = Annotated[Path, typer.Option(help="Where the exported models are.")]
Model = Annotated[str, typer.Option(help="A generative model of the repository.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that count.")]


SAMPLING: dict[str, dict[str, object]] = {
    "greedy": {},
    "temperature": {"temperature": 1.0, "seed": 1},
    "top_k 50, top_p 0.9": {"temperature": 1.0, "top_k": 50, "top_p": 0.9, "seed": 1},
}


@app.command()
def overhead(
    repository: Repository,
    model: Model = "fp32",
    rows: Annotated[int, typer.Option(min=1, help="Sequences at once.")] = 32,
    num_tokens: Annotated[int, typer.Option(min=2, help="Tokens of each.")] = 64,
) -> None:
    """Share of the time of decoding steps that is not ONNX Runtime's call, metrics included."""
    table = Table("sampling", "step, ms", "ONNX Runtime, ms", "outside", "outside, share", "p90")
    durations = asyncio.run(_decoding_steps(repository, model, rows, num_tokens))
    for kind, (step_ms, run_ms) in durations.items():
        outside_ms = step_ms - run_ms
        cells = (f"{np.median(ms):.2f}" for ms in (step_ms, run_ms, outside_ms))
        shares = outside_ms / step_ms
        table.add_row(kind, *cells, f"{np.median(shares):.1%}", f"{np.percentile(shares, 90):.1%}")
    console.print(table)


async def _decoding_steps(
    repository: Path, name: str, rows: int, num_tokens: int
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Milliseconds per step by kind of sampling: from one call to the next, and within the call."""
    steps: list[RanStep] = []
    durations_ms = {}
    async with serving(repository, name, steps) as model:
        lengths = (32, 64), (num_tokens, num_tokens)
        requests = random_prompts(rows, 5, *lengths, vocab_size_of(model))
        times_s = _time_calls(model)
        for kind, params in SAMPLING.items():
            steps.clear()
            times_s.clear()
            await run_all(model, requests, rows, **params)
            calls = np.array(times_s)
            is_full = [step.phase == "decode" and step.num_rows == rows for step in steps]
            places = np.flatnonzero(is_full[:-1])[1:-1]  # not those beside others
            step_s = calls[places + 1, 0] - calls[places, 0]
            durations_ms[kind] = (step_s * 1e3, (calls[places, 1] - calls[places, 0]) * 1e3)
    return durations_ms


def _time_calls(model: GenerativeModel) -> list[tuple[float, float]]:
    """A list that gets the beginning and end, in seconds, of each call of the decoder."""
    times_s: list[tuple[float, float]] = []

    class Timed(Binding):
        def run(self) -> None:
            started_s = time.perf_counter()
            super().run()
            times_s.append((started_s, time.perf_counter()))

    assert isinstance(model.engine, GenerationEngine)
    decoder = model.engine._decoder  # noqa: SLF001 - ours to look into
    assert isinstance(decoder, OnnxDecoder)
    session = decoder._session  # noqa: SLF001
    session.bind = lambda *arrays: Timed(session._session, "cpu", *arrays)  # type: ignore[method-assign] # noqa: SLF001
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
    steps: list[RanStep] = []
    async with serving(repository, name, steps, prefix_reuse=False) as model:
        requests = random_prompts(count, 7, (16, 128), (16, 64), vocab_size_of(model))
        await run_all(model, requests[:4], 4)
        capacity = len(requests) / await run_all(model, requests, 32)
        steps.clear()
        samples = await _at_once(model, requests, _arrivals(load * capacity, count))
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
    times_s: dict[str, list[float]] = {"without_reuse": [], "with_reuse": []}
    async with (
        serving(repository, name, prefix_reuse=False) as without,
        serving(repository, name, prefix_reuse=True) as reusing,
    ):
        engines = dict(zip(times_s, (without, reusing), strict=True))
        vocab_size = vocab_size_of(reusing)
        beginning = generator.integers(1, vocab_size, shared).tolist()
        for way, counts in turns(engines, rounds):
            prompt = Prompt(beginning + generator.integers(1, vocab_size, own).tolist(), 2)
            sample = await run_one(engines[way], prompt)
            if counts:
                times_s[way].append(sample.timings.time_to_first_token_s)
    medians = {f"{way}_ms": statistics.median(each) * 1e3 for way, each in times_s.items()}
    ratio = times_faster(times_s["with_reuse"], times_s["without_reuse"])
    console.print_json(json.dumps(medians | {"times_shorter": asdict(ratio)}))


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
    when the last one is done and it is full, or its first request has waited long enough; each
    request is answered as soon as its own tokens are done.
    """
    ways = way or ["continuous", "static"]
    table = Table("requests/s", *(f"{name}, p50, p95, ms per token" for name in ways))
    load = _Arrivals(seconds, group, wait_ms / 1e3, ways)
    for each, by_way in asyncio.run(load.run(repository, model, rate or [1, 2, 4])).items():
        cells = (", ".join(f"{ms:.0f}" for ms in np.percentile(by_way[w], (50, 95))) for w in ways)
        table.add_row(f"{each:g}", *cells)
    console.print(table)


def mixed_prompts(count: int, seed: int, vocab_size: int) -> list[Prompt]:
    """Outputs log-uniform from 8 to 200 tokens."""
    generator = np.random.default_rng(seed)
    outputs = np.exp(generator.uniform(np.log(8), np.log(201), count)).astype(int)
    return [
        Prompt(prompt.ids, int(num_tokens))
        for prompt, num_tokens in zip(
            random_prompts(count, seed, (16, 128), (1, 1), vocab_size), outputs, strict=True
        )
    ]


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """Poisson arrivals, answered at once or in groups."""

    seconds: float
    group: int
    wait_s: float  # for a group to fill
    ways: Sequence[str]

    async def run(
        self, repository: Path, name: str, rates: Sequence[float]
    ) -> dict[float, dict[str, list[float]]]:
        """Milliseconds per token of each request, by rate and way."""
        answers: dict[float, dict[str, list[float]]] = {}
        async with serving(repository, name, prefix_reuse=False) as model:
            vocab_size = vocab_size_of(model)
            warm_up = mixed_prompts(self.group, 1, vocab_size)  # touches all memory there is
            await run_all(model, warm_up, self.group)
            for rate in rates:
                requests = mixed_prompts(int(rate * self.seconds), 7, vocab_size)
                for way in self.ways:
                    arrive = self._in_groups if way == "static" else _at_once
                    dues_s = _arrivals(rate, len(requests))
                    samples = await arrive(model, requests, dues_s)
                    answers.setdefault(rate, {})[way] = [
                        1e3 * (sample.timings.finished_s - due_s) / prompt.num_tokens
                        for sample, due_s, prompt in zip(samples, dues_s, requests, strict=True)
                    ]
        return answers

    async def _in_groups(
        self, model: GenerativeModel, requests: Sequence[Prompt], dues_s: Sequence[float]
    ) -> list[Sample]:
        """A group has those requests that have arrived when it starts."""
        samples: list[Sample] = []
        first = 0
        while first < len(requests):
            end = min(first + self.group, len(requests))
            starts_s = min(dues_s[end - 1], dues_s[first] + self.wait_s)
            await asyncio.sleep(max(0.0, starts_s - time.monotonic()))
            now_s = time.monotonic()
            arrived = [i for i in range(first, end) if i == first or dues_s[i] <= now_s]
            samples += await asyncio.gather(*(run_one(model, requests[i]) for i in arrived))
            first += len(arrived)
        return samples


def _arrivals(rate: float, count: int) -> list[float]:
    """Times of Poisson arrivals from now on, of the monotonic clock."""
    gaps_s = np.random.default_rng(3).exponential(1 / rate, count)
    return list((time.monotonic() + np.cumsum(gaps_s)).tolist())


async def _at_once(
    model: GenerativeModel, requests: Sequence[Prompt], dues_s: Sequence[float]
) -> list[Sample]:
    """Each request is generated from its arrival on."""

    async def answer(prompt: Prompt, due_s: float) -> Sample:
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        return await run_one(model, prompt)

    return list(await asyncio.gather(*map(answer, requests, dues_s)))


if __name__ == "__main__":
    app()
