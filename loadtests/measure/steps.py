"""The cost of decoders' graphs: a decoding step and a prompt, for several graphs, interleaved.

    python -m loadtests.measure.steps a/model.onnx b/model.onnx --rows 1 --rows 8 --context 64

Each graph runs in the server's own decoder, without engine and sampling. A step gives `rows`
sequences one token each, behind `context` tokens that the cache has already; a prompt is `tokens`
long and in a slot by itself. Ratios are of speed, over the first graph, within a round.
"""

# ruff: noqa: B006 - Typer copies defaults

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.turns import per_second, spread, take_turns, times_faster
from service.generation.decoders.decoder import PREFILL_SUFFIX, OnnxDecoder
from service.generation.decoders.opening import SPIN_US, open_beside
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

WARM_UP = 2  # rounds that are not counted
console = Console()
Run = Callable[[OnnxDecoder], object]


def main(
    graphs: Annotated[list[Path], typer.Argument(help="ONNX files of decoders.")],
    rows: Annotated[list[int], typer.Option(min=1, help="Rows per step.")] = [1, 8, 32],
    context: Annotated[list[int], typer.Option(min=1, help="Tokens in the cache.")] = [64],
    tokens: Annotated[list[int], typer.Option(min=2, help="Tokens of a prompt.")] = [64],
    room: Annotated[int, typer.Option(min=2, help="Tokens that a slot has room for.")] = 1_024,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count, after two.")] = 20,
) -> None:
    """Time graphs side by side."""
    decoders = {_name_of(path): open_decoder(path, max(rows), room) for path in graphs}
    share_memory(list(decoders.values()))
    table = Table("work", "graph", "ms, median (range)", "tokens/s", "speed (range)")
    for work, num_tokens, run in _works(rows, context, tokens):
        ways = {name: partial(_timed, run, decoder) for name, decoder in decoders.items()}
        seconds = take_turns(ways, rounds, WARM_UP)
        first = next(iter(seconds.values()))
        for name, own in seconds.items():
            milliseconds = spread([each * 1e3 for each in own])
            speed = f"{per_second(num_tokens, own):.0f}"
            table.add_row(work, name, str(milliseconds), speed, str(times_faster(own, first)))
        table.add_section()
    console.print(table)


def _works(rows: list[int], context: list[int], tokens: list[int]) -> list[tuple[str, int, Run]]:
    """The timed cases: each with its name, its number of tokens, and its function."""
    works: list[tuple[str, int, Run]] = [
        (f"step, {num_rows} rows behind {past}", num_rows, step_of(num_rows, past))
        for past in context
        for num_rows in rows
    ]
    return works + [(f"prompt of {length}", length, _prompt(length)) for length in tokens]


def step_of(num_rows: int, past: int) -> Run:
    generator = np.random.default_rng(0)
    ids = [generator.integers(1, 250, 1) for _ in range(num_rows)]
    return lambda decoder: decoder.run(0, ids, [past] * num_rows)


def _prompt(length: int) -> Run:
    ids = np.random.default_rng(0).integers(1, 250, length)
    return lambda decoder: decoder.run(0, [ids], [0])


def _timed(run: Run, decoder: OnnxDecoder) -> float:
    started_s = time.perf_counter()
    run(decoder)
    return time.perf_counter() - started_s


def open_decoder(path: Path, num_slots: int, room: int) -> OnnxDecoder:
    options = SessionOptions(num_threads=available_cpus(), spin_us=SPIN_US)
    return OnnxDecoder(
        OnnxSession(path, options),
        num_slots=num_slots,
        max_tokens=room,
        max_rows=num_slots,
        prefill=open_beside(path, PREFILL_SUFFIX, options),
    )


def share_memory(decoders: list[OnnxDecoder]) -> None:
    """One cache for all graphs of one type, with values in it: untouched memory would be faster."""
    filled: dict[tuple[np.dtype, tuple[int, ...]], list[np.ndarray]] = {}
    for decoder in decoders:
        first = decoder._buffers[0]  # noqa: SLF001 - ours to look into
        key = (first.dtype, first.shape)
        if key not in filled:
            for buffer in decoder._buffers:  # noqa: SLF001
                _fill(buffer)
            filled[key] = decoder._buffers  # noqa: SLF001
        decoder._buffers = filled[key]  # noqa: SLF001


def _fill(buffer: np.ndarray) -> None:
    generator = np.random.default_rng(0)
    if buffer.dtype.kind == "f":
        buffer[0] = generator.standard_normal(buffer.shape[1:], np.float32)
    else:
        buffer[0] = generator.integers(-100, 100, buffer.shape[1:]).astype(buffer.dtype)
    buffer[1:] = buffer[0]


def _name_of(path: Path) -> str:
    """The model's folder where the file is in a version of a repository."""
    return path.parent.parent.name if path.parent.name.isdecimal() else str(path)


if __name__ == "__main__":
    typer.run(main)
