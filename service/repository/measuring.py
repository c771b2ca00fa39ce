"""Measure what runs of a text model cost, while it loads. Runs on the thread that loads.

A few small batches, in turn, until there are enough or the time is up: medians tolerate another
program that took the processors for a moment. Nothing is stored: another machine has other prices.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from threading import Timer

import numpy as np

from service.batching.request import Item, Request
from service.errors import ModelFailed
from service.records import Timings
from service.runtime.cost import CostCurve, fit
from service.runtime.session import RunStop

# Lengths of rows: overhead, text, more text, padding, attention, and attention on padding. Without
# the last one, attention was found to cost nothing as often as not: decision 0018.
BATCHES = ((8,), (8,) * 4, (32,) * 2, (32, 4, 4, 4), (144,), (200, 8, 8))
MAX_ROUNDS = 5  # after one that warms up
MIN_ROUNDS = 2  # fewer are no median
_TEXT_INPUTS = ("input_ids", "token_type_ids", "target_ids", "vector_mask")

Run = Callable[[Sequence[int], RunStop], object]  # one batch of made-up rows of these lengths


def measure_cost(
    run: Run, max_tokens: int, max_s: float, now_s: Callable[[], float] = time.perf_counter
) -> CostCurve | None:
    """The prices of a model whose rows have up to `max_tokens`, within `max_s` seconds.

    None where there was no time for it, or the times fit no curve; a model that fails is none of
    our business here.
    """
    batches = list(dict.fromkeys(tuple(min(n, max_tokens) for n in batch) for batch in BATCHES))
    runs = [partial(run, batch) for batch in batches]
    counted = timed_rounds(runs, MAX_ROUNDS + 1, max_s, now_s)[1:]
    if len(counted) < MIN_ROUNDS:
        return None
    return fit(list(zip(batches, map(median, zip(*counted, strict=True)), strict=True)))


def timed_rounds(
    runs: Sequence[Callable[[RunStop], object]],
    max_rounds: int,
    max_s: float,
    now_s: Callable[[], float],
) -> list[list[float]]:
    """The seconds of each run, in turn, for as many whole rounds as fit into `max_s` seconds.

    A run that fails ends it, as the end of the time does.
    """
    rounds: list[list[float]] = []
    stopping = RunStop()
    alarm = Timer(max_s, stopping.stop)
    alarm.daemon = True
    alarm.start()
    try:
        while len(rounds) < max_rounds:
            rounds.append([_time(run, stopping, now_s) for run in runs])
    except ModelFailed:
        pass  # stopped or failed, in the middle of a round
    finally:
        alarm.cancel()
        alarm.join()  # its thread holds what `stopping` would end, and so the session
    return rounds


def made_up_items(lengths: Sequence[int]) -> list[Item]:
    """Texts of these lengths; what they say changes nothing about the time."""
    request = Request(Timings(0.0))
    rows = [np.zeros((1, length), np.int64) for length in lengths]
    return [Item(request, dict.fromkeys(_TEXT_INPUTS, row), num_tokens=row.size) for row in rows]


def _time(run: Callable[[RunStop], object], stopping: RunStop, now_s: Callable[[], float]) -> float:
    if stopping.is_stopped:
        raise ModelFailed("the time is up")
    started_s = now_s()
    run(stopping)
    return now_s() - started_s
