"""The cost of decoders' graphs: a decoding step and a prompt, for several graphs, in turns.

    python -m loadtests.measure steps --graph a/model.onnx --graph b/model.onnx --rows 1 --rows 8

Each graph runs in the server's own decoder, without engine and sampling. A step gives `rows`
sequences one token each, behind `context` tokens that the cache has already; a prompt is `tokens`
long and in a slot by itself. Ratios are of speed, over the first graph, within a round.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from loadtests.measure.records import (
    CASE,
    FIRST,
    Column,
    Measure,
    Options,
    Turn,
    Way,
    by_columns,
    counted,
    option,
)
from service.generation.decoders.decoder import PREFILL_SUFFIX, OnnxDecoder
from service.generation.decoders.opening import SPIN_US, open_beside
from service.runtime.cpus import available_cpus
from service.runtime.session import OnnxSession, SessionOptions

Run = Callable[[OnnxDecoder], object]
DEFAULT_GRAPH = Path("model_repository/gpt/1/model.onnx")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions(Options):
    """Graphs, and what they are given."""

    graphs: list[Path] = option([DEFAULT_GRAPH], "ONNX file of a decoder.", flag="--graph")
    rows: list[int] = option([1, 8, 32], "Rows per step.", min=1)
    context: list[int] = option([64], "Tokens in the cache.", min=1)
    tokens: list[int] = option([64], "Tokens of a prompt.", min=2)
    room: int = option(1_024, "Tokens that a slot has room for.", min=2)
    warm_up: int = option(2, "Rounds before those that count.", min=0)


def ways(options: StepOptions, _: ExitStack) -> dict[str, Way]:
    """Every case with every graph."""
    most_rows = max(options.rows)
    decoders = {
        name_of(path): open_decoder(path, most_rows, options.room) for path in options.graphs
    }
    share_memory(list(decoders.values()))
    return {
        f"{case}{CASE}{name}": partial(timed, run, decoder, num_tokens)
        for case, num_tokens, run in _cases(options)
        for name, decoder in decoders.items()
    }


def _cases(options: StepOptions) -> list[tuple[str, int, Run]]:
    """Each with its name, its number of tokens, and its function."""
    cases: list[tuple[str, int, Run]] = [
        (f"step, {counted(num_rows, 'row')} behind {past}", num_rows, step_of(num_rows, past))
        for past in options.context
        for num_rows in options.rows
    ]
    return cases + [(f"prompt of {length}", length, _prompt(length)) for length in options.tokens]


def step_of(num_rows: int, past: int) -> Run:
    generator = np.random.default_rng(0)
    ids = [generator.integers(1, 250, 1) for _ in range(num_rows)]
    return lambda decoder: decoder.run(0, ids, [past] * num_rows)


def _prompt(length: int) -> Run:
    ids = np.random.default_rng(0).integers(1, 250, length)
    return lambda decoder: decoder.run(0, [ids], [0])


def timed(run: Run, decoder: OnnxDecoder, num_tokens: int) -> Turn:
    started_s = time.perf_counter()
    run(decoder)
    return {"seconds": time.perf_counter() - started_s, "tokens": num_tokens}


def open_decoder(path: Path, num_slots: int, room: int) -> OnnxDecoder:
    options = SessionOptions(num_threads=available_cpus(), spin_us=SPIN_US)
    return OnnxDecoder(
        OnnxSession(path, options),
        num_slots=num_slots,
        max_tokens=room,
        max_rows=num_slots,
        prefill=open_beside(path, PREFILL_SUFFIX, options),
    )


def share_memory(decoders: Sequence[OnnxDecoder]) -> None:
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


def name_of(path: Path) -> str:
    """The model's folder where the file is in a version of a repository."""
    return path.parent.parent.name if path.parent.name.isdecimal() else str(path)


STEPS = Measure(
    "steps",
    "A decoding step and a prompt of several graphs, in the server's decoder",
    "Generation",
    StepOptions,
    ways,
    by_columns(
        Column("a run", "seconds", "ms"),
        Column("tokens/s", "tokens/seconds"),
        Column("speed over the first", "tokens/seconds", over=FIRST),
    ),
)
