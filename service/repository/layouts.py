"""Which of an encoder's two graphs is the faster one here: packed, or padded.

Packed computes the tokens of all rows and nothing of the padding, in a few more nodes; padded has
the operators that devices are tuned for. Which is faster depends on the device, so both run the
same batches in turn while the model loads. Runs on the thread that loads. Unverified on CUDA:
docs/how-to/cuda.md.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, log
from statistics import fmean, median

from service.errors import ModelFailed
from service.repository.measuring import MAX_ROUNDS, MIN_ROUNDS, Run, timed_rounds
from service.runtime.session import RunStop

# Tokens of text messages, at the middle of each eighth (loadtests/load/lengths.toml, 1.3 tokens per
# word and two more); then lengths as a batcher puts them together, and longer texts.
_MESSAGES = (7, 10, 12, 16, 20, 27, 36, 44)
BATCHES: tuple[tuple[int, ...], ...] = ((20,), _MESSAGES, _MESSAGES * 4, (32,) * 16, (128,) * 8)
WARM_UP_S = 60.0  # for the first runs of a graph, which choose kernels and allocate


@dataclass(frozen=True, slots=True)
class LayoutChoice:
    """The name of one of several graphs, and why it is the one."""

    name: str
    reason: str
    failure: ModelFailed | None = None  # of the other graph


def choose_layout(
    runs: Mapping[str, Run],
    max_tokens: int,
    max_rows: int,
    max_s: float,
    now_s: Callable[[], float] = time.perf_counter,
) -> LayoutChoice:
    """The faster of two graphs by their names, the preferred one first.

    They are measured for at most `max_s` seconds after their first runs. The ratio in the reason is
    the geometric mean over the batches, each by the medians of its times. Raises `ModelFailed`
    where neither runs.
    """
    batches = list(dict.fromkeys(tuple(min(n, max_tokens) for n in b[:max_rows]) for b in BATCHES))
    preferred, other = runs
    if not max_s:
        return LayoutChoice(preferred, "preferred, as nothing is measured")
    failures = {
        name: failure
        for name, run in runs.items()
        if (failure := _failure_of(run, batches, now_s)) is not None
    }
    if len(failures) == len(runs):
        raise failures[preferred]
    for name, failure in failures.items():
        (able,) = (each for each in runs if each != name)
        return LayoutChoice(able, f"the runs of {name} failed", failure)
    in_turn = [partial(run, batch) for batch in batches for run in runs.values()]
    rounds = timed_rounds(in_turn, MAX_ROUNDS, max_s, now_s)
    if len(rounds) < MIN_ROUNDS:
        return LayoutChoice(preferred, "preferred, as there was no time to measure")
    medians = [median(times) for times in zip(*rounds, strict=True)]
    pairs = zip(medians[::2], medians[1::2], strict=True)
    ratio = exp(fmean(log(other_s / preferred_s) for preferred_s, other_s in pairs))
    if ratio >= 1:
        return LayoutChoice(preferred, f"{ratio:.2f} times as fast as {other}")
    return LayoutChoice(other, f"{1 / ratio:.2f} times as fast as {preferred}")


def _failure_of(
    run: Run, batches: Sequence[tuple[int, ...]], now_s: Callable[[], float]
) -> ModelFailed | None:
    """The error of a graph that does not compute each batch; its first runs are done otherwise."""
    failures: list[ModelFailed] = []

    def note(lengths: Sequence[int], stopping: RunStop) -> None:
        try:
            run(lengths, stopping)
        except ModelFailed as error:
            failures.append(error)
            raise

    timed_rounds([partial(note, batch) for batch in batches], 1, WARM_UP_S, now_s)
    return failures[0] if failures else None
