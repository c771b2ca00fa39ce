"""Measures of `loadtests/measure` within a section's time, and the machine's own limits.

The cases of a measure are taken one after the other, each with its part of the time that is left;
the ways of a case take turns. What cannot be opened, or fails in its first turn, is left out, and
is a check that does not hold where it is ours. Figures go into the report and, as those of every
other measure, into a JSON file.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache

import torch

from loadtests.gpu.context import ClaimKind, Context
from loadtests.load.turns import take_turns
from loadtests.measure.records import CASE, Figure, Measure, Options, Rounds, Way, case_of, tables
from loadtests.measure.results import measured, write

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Far beyond the L2 of any GPU (60 MB on an H200), and a product that fills it for milliseconds.
COPY_BYTES, PRODUCT_SIZE = 4 * 2**30, 8_192
TINY_COPY_BYTES, TINY_PRODUCT_SIZE = 16 * 2**20, 256
LIMIT_ROUNDS, WAKING_S = 11, 0.5  # of products before anything is timed: idle clocks are low
OURS = "ours"  # what the names of our ways begin with
CHECKED = "difference of logits"  # the column whose goal is a check
Open = Callable[[], Callable[[], dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Goal:
    """What the fastest of our ways is to reach in a column, in cases with this beginning."""

    column: str
    value: float
    case: str = ""
    at_most: bool = False

    def on(self, figure: Figure) -> Figure:
        """A figure with this goal, where it is of its column and case."""
        is_its = figure.column == self.column and figure.row.startswith(self.case)
        return replace(figure, goal=self.value, at_most=self.at_most) if is_its else figure


def way_of(row: str) -> str:
    """A row's name without its case."""
    return row.removeprefix(case_of(row))


def with_goals(figures: Sequence[Figure], goals: Iterable[Goal], speed: str) -> list[Figure]:
    """Figures with the goals of our fastest way of each case, by the column of speeds."""
    best: dict[str, Figure] = {}
    for figure in figures:
        if figure.column == speed and way_of(figure.row).startswith(OURS):
            before = best.setdefault(case_of(figure.row), figure)
            best[case_of(figure.row)] = max(before, figure, key=lambda each: each.median)
    rows = {figure.row for figure in best.values()}
    for goal in goals:
        figures = [goal.on(figure) if figure.row in rows else figure for figure in figures]
    return list(figures)


def measure_within(
    context: Context, measure: Measure, options: Options, time_s: float, name: str
) -> None:
    """Tables, claims and a result file of a measure, whose name the last is the file's."""
    ends_s, rounds = time.monotonic() + time_s, dict[str, list[dict[str, float]]]()
    with ExitStack() as stack:
        with context.parts.timed("open"):
            ways = measure.ways(options, stack)
        cases = list(dict.fromkeys(map(case_of, ways)))
        for index, case in enumerate(cases):
            title = f", {case.removesuffix(CASE)}" if case else ""
            left_s = ends_s - time.monotonic()
            if left_s <= 0:
                context.leave_out(f"{name}{title}: no time was left")
                continue
            own = {way: run for way, run in ways.items() if case_of(way) == case}
            own = {way: run for way, run in own.items() if _is_usable(context, name, way, run)}
            with context.parts.timed("run"):
                late_s = time.monotonic() + (ends_s - time.monotonic()) / (len(cases) - index)
                rounds |= take_turns(own, options.rounds, shows_progress=False, ends_s=late_s)  # type: ignore[arg-type]
            context.say(f"{name}{title}, has its figures")
    _keep(context, measure, rounds, name)


def _keep(context: Context, measure: Measure, rounds: Rounds, name: str) -> None:
    figures = measure.figures(rounds) if rounds else []
    result = measured(name, measure.page, measure.claim, figures, rounds)
    write(result, context.run.out / "results")
    for title, (columns, rows) in tables(figures).items():
        for row, cells in rows.items():
            shown = {column: str(cells.get(column, "")) for column in columns}
            context.row(title or name, way=row, **shown)
    for figure in figures:
        if figure.goal is not None:
            kind: ClaimKind = "check" if figure.column == CHECKED else "goal"
            claim = context.at_most if figure.at_most else context.at_least
            what = f"{name}, {figure.row}: {figure.column}"
            claim(what, figure.median, figure.goal, figure.unit, kind)


def _is_usable(context: Context, name: str, way: str, run: Way) -> bool:
    """Whether a way's first turn, which touches the memory and compiles, does not fail."""
    try:
        with context.parts.timed("first turns"):
            run()
    except Exception as error:  # of any library: the other ways are timed all the same
        said = f"{type(error).__name__}: {str(error)[:300]}"
        if way_of(way).startswith(OURS):
            context.check(f"{name}, {way}, is timed", False, said)
        else:
            context.leave_out(f"{name}, {way}: {said}")
        return False
    return True


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Bytes and operations per second, and seconds, of the device."""

    copy_bytes_per_s: float  # read and written bytes of a copy on the device
    flops_per_s: dict[str, float]  # of a matrix product, by precision
    launch_s: float  # of an operator that does next to nothing, one after the other


@cache
def machine_limits(device: str, *, is_tiny: bool) -> MachineLimits:
    """The limits of the device, through PyTorch; takes a second or two on a GPU."""
    copy_bytes, size = (
        (TINY_COPY_BYTES, TINY_PRODUCT_SIZE) if is_tiny else (COPY_BYTES, PRODUCT_SIZE)
    )
    if device == "cuda":
        copy_bytes = min(copy_bytes, torch.cuda.mem_get_info()[0] // 16 * 4)
    source = torch.ones(copy_bytes // 4, dtype=torch.float32, device=device)
    target, one = torch.empty_like(source), torch.zeros(1, device=device)
    precisions = ("fp32", "bf16") if device == "cpu" else ("fp16", "bf16")
    return MachineLimits(
        2 * copy_bytes / _seconds_of(device, lambda: target.copy_(source)),
        {name: _product_rate(device, size, DTYPES[name]) for name in precisions},
        _seconds_of(device, lambda: [one.add_(1.0) for _ in range(100)]) / 100,
    )


def show_limits(context: Context) -> None:
    """The table of the machine's limits."""
    limits, what = machine_limits(context.device, is_tiny=context.is_tiny), "The machine's limits"
    context.row(what, limit="memory, copied", measured=f"{limits.copy_bytes_per_s / 1e9:,.0f} GB/s")
    for name, rate in limits.flops_per_s.items():
        context.row(what, limit=f"product, {name}", measured=f"{rate / 1e12:,.3g} TFLOP/s")
    context.row(what, limit="launch by PyTorch", measured=f"{limits.launch_s * 1e6:.2f} us")


def free_memory(device: str) -> None:
    """Give back what PyTorch holds of networks that are gone, compiled ones included."""
    torch.compiler.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def _seconds_of(device: str, work: Callable[[], object]) -> float:
    """The time of work on the device, from its beginning to its end, after some warm-up."""
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else tuple
    taken_s: list[float] = []
    ends_s = time.perf_counter() + (WAKING_S if device == "cuda" else 0.0)
    while time.perf_counter() < ends_s or len(taken_s) < LIMIT_ROUNDS:
        wait()
        started_s = time.perf_counter()
        work()
        wait()
        taken_s.append(time.perf_counter() - started_s)
    return statistics.median(taken_s[-LIMIT_ROUNDS:])


def _product_rate(device: str, size: int, dtype: torch.dtype) -> float:
    """Of random numbers: zeros are multiplied faster, since fewer bits change."""
    generator = torch.Generator(device).manual_seed(1)
    one, other = (
        torch.randn(size, size, generator=generator, device=device).to(dtype) for _ in range(2)
    )
    result = torch.empty_like(one)
    return 2 * size**3 / _seconds_of(device, lambda: torch.mm(one, other, out=result))
