"""What does choosing tokens cost per step of a batch? Against the model's run, which it follows.

    OMP_NUM_THREADS=1 python -m loadtests.sampling

Logits are normal with a few likely tokens above them, which is where text is; `flat` is
the worst there is, every token as likely as another. Kinds take turns within each round.
"""

import statistics
import time
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from service.generation.sampling import SamplerState, sample
from service.generation.sampling_params import SamplingParams

BATCH_SIZES = (1, 8, 32)
PROMPT_TOKENS = 512
LIKELY_TOKENS = 200
KINDS = {
    "greedy": SamplingParams(temperature=0.0),
    "greedy, penalties": SamplingParams(
        temperature=0.0, repetition_penalty=1.1, frequency_penalty=0.5
    ),
    "temperature": SamplingParams(temperature=0.8),
    "top_k 50": SamplingParams(top_k=50),
    "top_p 0.95": SamplingParams(top_p=0.95),
    "min_p 0.05": SamplingParams(min_p=0.05),
    "top_k 50, top_p 0.95": SamplingParams(top_k=50, top_p=0.95),
    "penalties, top_p": SamplingParams(
        top_p=0.95, repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=0.5
    ),
    "greedy, logprobs 5": SamplingParams(temperature=0.0, logprobs=5),
    "temperature, flat": SamplingParams(temperature=100.0),
    "top_p 0.95, flat": SamplingParams(temperature=100.0, top_p=0.95),
}


def main(
    vocab_size: Annotated[int, typer.Option(min=1_000, help="Tokens to choose from.")] = 50_257,
    rounds: Annotated[int, typer.Option(min=1, help="Steps per kind and batch size.")] = 100,
) -> None:
    """Time a step of sampling by kind and batch size."""
    table = Table("ms per step, median (largest)", *(f"B = {size}" for size in BATCH_SIZES))
    times = {size: _measure(size, vocab_size, rounds) for size in BATCH_SIZES}
    for kind in KINDS:
        cells = (times[size][kind] for size in BATCH_SIZES)
        table.add_row(kind, *(f"{statistics.median(ms):.2f} ({max(ms):.2f})" for ms in cells))
    Console().print(table)


def _measure(num_rows: int, vocab_size: int, rounds: int) -> dict[str, list[float]]:
    random = np.random.default_rng(0)
    prompt_ids = random.integers(0, vocab_size, PROMPT_TOKENS)
    states = {
        kind: [SamplerState(params, prompt_ids, (0,), row) for row in range(num_rows)]
        for kind, params in KINDS.items()
    }
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in track(range(rounds), description=f"B = {num_rows}"):
        logits = random.standard_normal((num_rows, vocab_size), np.float32)
        likely = random.integers(0, vocab_size, (num_rows, LIKELY_TOKENS))
        np.put_along_axis(logits, likely, random.exponential(3.0, likely.shape) + 6.0, axis=1)
        for kind, kind_states in states.items():
            started_s = time.perf_counter()
            sample(logits, kind_states)
            times[kind].append((time.perf_counter() - started_s) * 1e3)
    return times


if __name__ == "__main__":
    typer.run(main)
