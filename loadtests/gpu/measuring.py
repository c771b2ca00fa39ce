"""Measures of the comparison within a section's time, and the table of the machine's limits.

The cases of a measure are taken one after the other, each with its part of the time that is left;
the ways of a case take turns. What cannot be opened, or fails in its first turn, is left out, and
is a check that does not hold unless it is a peer. Figures go into the report and, as those of every
other measure, into a JSON file.
docs/how-to/cuda.md says what was verified on CUDA.
"""

import time
from contextlib import ExitStack

from loadtests.compare.devices.goals import CHECKED, THEIRS, way_of
from loadtests.compare.devices.machine import machine_limits
from loadtests.gpu.context import ClaimKind, Context
from loadtests.load.turns import take_turns
from loadtests.measure.records import CASE, Measure, Options, Rounds, Way, case_of, tables
from loadtests.measure.results import measured, write


def measure_within(
    context: Context, measure: Measure, options: Options, time_s: float, name: str
) -> None:
    """Take a measure's rounds, and keep its tables, claims and result file, called `name`."""
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
                case_ends_s = time.monotonic() + (ends_s - time.monotonic()) / (len(cases) - index)
                rounds |= take_turns(own, options.rounds, shows_progress=False, ends_s=case_ends_s)  # type: ignore[arg-type]
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
        if way_of(way).startswith(THEIRS):
            context.leave_out(f"{name}, {way}: {said}")
        else:
            context.check(f"{name}, {way}, is timed", False, said)
        return False
    return True


def show_limits(context: Context) -> None:
    """The table of the machine's limits."""
    limits, what = machine_limits(context.device, is_tiny=context.is_tiny), "The machine's limits"
    context.row(what, limit="memory, copied", measured=f"{limits.copy_bytes_per_s / 1e9:,.0f} GB/s")
    for name, rate in limits.flops_per_s.items():
        context.row(what, limit=f"product, {name}", measured=f"{rate / 1e12:,.3g} TFLOP/s")
    context.row(what, limit="launch by PyTorch", measured=f"{limits.launch_s * 1e6:.2f} us")
