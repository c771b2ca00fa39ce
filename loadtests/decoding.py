"""What a decoder's graph costs: a decoding step and a prompt, for several graphs, interleaved.

    python -m loadtests.decoding a/model.onnx b/model.onnx --rows 1 --rows 8 --context 64
    python -m loadtests.decoding a/model.onnx --profile --rows 8

Each graph runs in the server's own decoder, without engine and sampling. A step gives `rows`
sequences one token each, behind `context` tokens that the cache has already; a prompt is `tokens`
long and in a slot by itself. Ratios are of speed, over the first graph, within a round.
`--profile` shows where the time of steps and prompts goes instead, by kind of node.
"""

# ruff: noqa: B006 - Typer copies defaults

import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import typer
from rich.console import Console
from rich.table import Table

from service.cpus import available_cpus
from service.generation.decoder import PREFILL_SUFFIX, SPIN_US, OnnxDecoder, open_prefill
from service.runtime import OnnxSession, SessionOptions, _ort_options

PROMPT = "prompt"
WARM_UP = 2  # rounds that are not counted
console = Console()


def main(
    graphs: Annotated[list[Path], typer.Argument(help="ONNX files of decoders.")],
    rows: Annotated[list[int], typer.Option(min=1, help="Rows per step.")] = [1, 8, 32],
    context: Annotated[list[int], typer.Option(min=1, help="Tokens in the cache.")] = [64],
    tokens: Annotated[list[int], typer.Option(min=2, help="Tokens of a prompt.")] = [64],
    room: Annotated[int, typer.Option(min=2, help="Tokens that a slot has room for.")] = 1_024,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count, after two.")] = 20,
    spin_us: Annotated[list[int], typer.Option(help="How long threads poll in a run.")] = [SPIN_US],
    profile: Annotated[bool, typer.Option(help="Show nodes instead.")] = False,
) -> None:
    """Time graphs side by side."""
    ways = {
        _name_of(path) + (f", polling {spin} us" if len(spin_us) > 1 else ""): (
            path,
            SessionOptions(num_threads=available_cpus(), spin_us=spin),
        )
        for path in graphs
        for spin in spin_us
    }
    works = _works(rows, context, tokens)
    if profile:
        for name, (path, options) in ways.items():
            _profile(name, path, options, works, max(rows), room, rounds)
        return
    decoders = [
        _decoder(OnnxSession(*way), max(rows), room, open_prefill(*way)) for way in ways.values()
    ]
    _share_memory(decoders)
    table = Table("work", "graph", "ms (median)", "tokens/s", "speed (median)", "least", "most")
    for work, num_tokens, run in works:
        seconds = _interleaved(run, decoders, rounds)
        for name, own in zip(ways, seconds, strict=True):
            speeds = [first / each for first, each in zip(seconds[0], own, strict=True)]
            middle = statistics.median(own)
            figures = statistics.median(speeds), min(speeds), max(speeds)
            table.add_row(
                work,
                name,
                f"{middle * 1e3:.2f}",
                f"{num_tokens / middle:.0f}",
                *(f"{figure:.2f}" for figure in figures),
            )
        table.add_section()
    console.print(table)


Run = Callable[[OnnxDecoder], object]


def _works(rows: list[int], context: list[int], tokens: list[int]) -> list[tuple[str, int, Run]]:
    """What is timed, how many tokens it computes, and how."""
    works: list[tuple[str, int, Run]] = [
        (f"step, {num_rows} rows behind {past}", num_rows, _step(num_rows, past))
        for past in context
        for num_rows in rows
    ]
    return works + [(f"{PROMPT} of {length}", length, _prompt(length)) for length in tokens]


def _step(num_rows: int, past: int) -> Run:
    generator = np.random.default_rng(0)
    ids = [generator.integers(1, 250, 1) for _ in range(num_rows)]
    return lambda decoder: decoder.run(0, ids, [past] * num_rows)


def _prompt(length: int) -> Run:
    ids = np.random.default_rng(0).integers(1, 250, length)
    return lambda decoder: decoder.run(0, [ids], [0])


def _interleaved(run: Run, decoders: list[OnnxDecoder], rounds: int) -> list[list[float]]:
    """Seconds of each decoder, round by round; the order turns around every round."""
    seconds: list[list[float]] = [[] for _ in decoders]
    for count in range(rounds + WARM_UP):
        order = range(len(decoders)) if count % 2 else reversed(range(len(decoders)))
        for index in order:
            started_s = time.perf_counter()
            run(decoders[index])
            if count >= WARM_UP:
                seconds[index].append(time.perf_counter() - started_s)
    return seconds


def _decoder(
    session: OnnxSession, num_slots: int, room: int, prefill: OnnxSession | None = None
) -> OnnxDecoder:
    return OnnxDecoder(
        session, num_slots=num_slots, max_tokens=room, max_rows=num_slots, prefill=prefill
    )


def _share_memory(decoders: list[OnnxDecoder]) -> None:
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


def _profile(
    name: str,
    path: Path,
    options: SessionOptions,
    works: list[tuple[str, int, Run]],
    num_slots: int,
    room: int,
    rounds: int,
) -> None:
    """Each work in a session of its own, since a session is profiled as a whole."""
    for work, _, run in works:
        with tempfile.TemporaryDirectory() as folder:
            session, prefill = OnnxSession(path, options), open_prefill(path, options)
            own, graph = session, path
            if prefill is not None and work.startswith(PROMPT):
                own, graph = prefill, path.with_suffix(PREFILL_SUFFIX)
            chosen = _ort_options(onnxruntime, options)
            chosen.enable_profiling = True
            chosen.profile_file_prefix = str(Path(folder, "profile"))
            own._session = onnxruntime.InferenceSession(graph, chosen)  # noqa: SLF001
            decoder = _decoder(session, num_slots, room, prefill)
            _share_memory([decoder])
            for _ in range(WARM_UP + rounds):
                run(decoder)
            events = json.loads(Path(own._session.end_profiling()).read_text())  # noqa: SLF001
        console.print(_table_of(f"{name}: {work}", events, WARM_UP + rounds))


def _table_of(title: str, events: list[dict], num_runs: int) -> Table:  # type: ignore[type-arg]
    """Microseconds per run, by kind of node and size of weights, without the first runs' share."""
    kernels = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    durations: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in kernels:
        arguments = event["args"]
        shapes = [next(iter(s.values())) for s in arguments.get("input_type_shape", [])]
        size = "x".join(map(str, max(shapes[1:3], key=np.prod, default=[])))
        kind = arguments["op_name"]
        durations[kind, size if "MatMul" in kind or "Gemm" in kind else ""].append(event["dur"])
    whole = [e["dur"] for e in events if e["name"] == "model_run"]
    table = Table("node", "of", "count", "us per run", "share", title=title)
    total = statistics.median(whole)
    found = []
    for (kind, size), values in durations.items():
        count = len(values) // num_runs
        by_run = np.array(values[-count * (num_runs - WARM_UP) :]).reshape(-1, max(count, 1))
        found.append((float(np.median(by_run.sum(axis=1))), kind, size, count))
    for microseconds, kind, size, count in sorted(found, reverse=True):
        share = f"{microseconds / total:.1%}"
        table.add_row(kind, size, str(count), f"{microseconds:.0f}", share)
    table.add_row("all nodes", "", "", f"{sum(f[0] for f in found):.0f}", "")
    table.add_row("the run", "", "", f"{total:.0f}", "100 %")
    return table


def _name_of(path: Path) -> str:
    """The model's folder where the file is in a version of a repository."""
    return path.parent.parent.name if path.parent.name.isdecimal() else str(path)


if __name__ == "__main__":
    typer.run(main)
