"""Networks are compiled side by side before they are timed; here the compiler does nothing."""

import time
from pathlib import Path

from loadtests.gpu.compiled_ahead import CompiledAhead, tasks_of
from loadtests.gpu.context import Context, Run
from loadtests.gpu.shapes import DECODERS, ENCODERS

LIMIT_S = 100.0


def context_of(folder: Path, *, is_tiny: bool = True) -> Context:
    return Context(Run(folder, "cpu", is_tiny=is_tiny), "6 speed", time.monotonic() + LIMIT_S)


def fails(context: Context) -> None:
    raise RuntimeError(f"{context.section} does not compile")


def sleeps(context: Context) -> None:
    time.sleep(LIMIT_S)


def test_the_loads_of_all_shapes_are_compiled_ahead(tmp_path: Path) -> None:
    tasks = list(tasks_of(context_of(tmp_path, is_tiny=False)))
    loads = ["8 x 128", "real lengths", "8 x 512"]
    assert tasks[:6] == [(name, load) for name in ENCODERS for load in loads]
    assert tasks[6:] == [(name, rows) for rows in ("1", "32") for name in DECODERS]


def test_what_ended_well_in_time_is_known_to_be_compiled(tmp_path: Path) -> None:
    context, ahead = context_of(tmp_path), CompiledAhead()
    encoder, decoder = ("tiny-encoder", "2 x 32"), ("tiny-decoder", "4")
    tasks = tasks_of(context)
    started = {encoder: tasks[encoder], decoder: tasks[decoder], ("wrong", "1"): fails}
    ahead.start(context, started)
    ahead.wait(LIMIT_S)
    assert ahead.done == {encoder, decoder}


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    ahead = CompiledAhead()
    ahead.start(context_of(tmp_path), {("slow", "1"): sleeps})
    ahead.wait(0.0)
    (process,) = ahead.processes.values()
    assert not process.is_alive()
    assert ahead.done == frozenset()
