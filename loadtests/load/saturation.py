"""The highest rate that meets an SLO: doubled until it fails, then halved in between.

Pure. A measured system is noisy: what is found is a rate that met the SLO once, beside one that
did not, no more than `precision` apart, or as near as the number of runs allows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Saturation:
    """Rates in requests per second; `failing` is infinite where no rate failed."""

    meeting: float
    failing: float
    num_runs: int


def saturation(
    meets: Callable[[float], bool],
    first_rate: float,
    max_runs: int = 12,
    precision: float = 0.05,
) -> Saturation:
    """Search from a rate on. `meeting` is 0 where none of the rates tried met the SLO."""
    meeting, failing = 0.0, math.inf
    for num_runs in range(1, max_runs + 1):
        rate = _next(meeting, failing, first_rate)
        if meets(rate):
            meeting = rate
        else:
            failing = rate
        if failing <= meeting * (1 + precision):
            return Saturation(meeting, failing, num_runs)
    return Saturation(meeting, failing, max_runs)


def _next(meeting: float, failing: float, first_rate: float) -> float:
    # There are four cases: nothing known, no rate failed, none met, or one of each.
    if meeting == 0 and math.isinf(failing):
        return first_rate
    if math.isinf(failing):
        return meeting * 2
    if meeting == 0:
        return failing / 2
    return math.sqrt(meeting * failing)
