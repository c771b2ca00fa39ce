"""Interleaved rounds: every way takes its turn, and only turns of one round are compared.

A machine that changes speed changes all ways of a round alike, so that a ratio within a round holds
where seconds do not. The order is reversed every other round: A B, B A, A B.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

Turn = TypeVar("Turn")
LEAST_ROUNDS = 3  # whatever the time is


@dataclass(frozen=True, slots=True)
class Spread:
    """Figures of all rounds: the median, and the lowest and highest."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


def spread(figures: Sequence[float]) -> Spread:
    return Spread(statistics.median(figures), min(figures), max(figures))


def times_faster(ours_s: Sequence[float], theirs_s: Sequence[float]) -> Spread:
    """Speed of ours over theirs, from the seconds of the same rounds."""
    return spread([theirs / ours for ours, theirs in zip(ours_s, theirs_s, strict=True)])


def per_second(amount: int, seconds: Sequence[float]) -> float:
    """At the median duration."""
    return amount / statistics.median(seconds)


def turns(names: Iterable[str], rounds: int, warm_up: int = 1) -> Iterator[tuple[str, bool]]:
    """Names in the order of their turns, each with whether its turn counts."""
    order = list(names)
    for index in range(warm_up + rounds):
        for name in reversed(order) if index % 2 else order:
            yield name, index >= warm_up


def take_turns(
    ways: Mapping[str, Callable[[], Turn]],
    rounds: int,
    warm_up: int = 1,
    *,
    shows_progress: bool = True,
    ends_s: float = inf,
) -> dict[str, list[Turn]]:
    """The results of each way in its counted turns; shows a progress bar meanwhile.

    No round begins after `ends_s` of `time.monotonic`, once there are `LEAST_ROUNDS`.
    """
    results: dict[str, list[Turn]] = {name: [] for name in ways}
    with Progress(console=Console(stderr=True), disable=not shows_progress) as progress:
        task = progress.add_task("rounds", total=(warm_up + rounds) * len(ways))
        for index, (name, counts) in enumerate(turns(ways, rounds, warm_up)):
            num_rounds, place = divmod(index, len(ways))
            has_enough = num_rounds >= warm_up + LEAST_ROUNDS
            if not place and has_enough and time.monotonic() > ends_s:
                break
            result = ways[name]()
            if counts:
                results[name].append(result)
            progress.advance(task)
    return results
