"""A measurement as a record: ways that take turns, and the figures that their rounds give.

Pure. A turn is numbers by name, such as its seconds and the tokens that it gave. A figure is the
median of all rounds with its lowest and highest; a ratio is one of the numbers of one round.
A way's name may begin with its case, "32 rows: schema"; ratios are over a way of the same case.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

from loadtests.load.turns import Spread, spread

Turn: TypeAlias = Mapping[str, float]
Way: TypeAlias = Callable[[], Turn]
Rounds: TypeAlias = Mapping[str, Sequence[Turn]]  # the turns that count, by way
CASE = ": "  # between a case and its way
FIRST = "the first way"  # of a case, as what others are compared with
TIMES = "times"
EXACT = ("cosine", "correlation")  # units of four digits
Value = TypeVar("Value")


def option(default: Value, text: str, **says: Any) -> Value:
    """A field of options: its flag has this help, and bounds as Typer has them.

    `flag` names it where the field does not.
    """
    metadata = {"help": text, **says}
    if isinstance(default, list):
        made: Any = field(default_factory=default.copy, metadata=metadata)
        return cast(Value, made)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What every measure can be told; each adds its own fields."""

    rounds: int = option(5, "Rounds that count.", min=1)
    warm_up: int = option(1, "Rounds before them.", min=0)


@dataclass(frozen=True, slots=True)
class Figure:
    """One cell of a table, with its range where there were several rounds."""

    row: str
    column: str
    median: float
    lowest: float
    highest: float
    unit: str = ""
    goal: float | None = None
    table: str = ""  # a heading, where a measure has several tables
    at_most: bool = False  # the goal is a bound from above

    @classmethod
    def of(cls, row: str, column: str, values: Spread, unit: str = "", **more: Any) -> "Figure":
        """A figure of a spread, with as many digits as its unit deserves."""
        median, lowest, highest = (
            rounded(each, unit) for each in (values.median, values.lowest, values.highest)
        )
        return cls(row, column, median, lowest, highest, unit, **more)

    @property
    def has_range(self) -> bool:
        return self.lowest != self.highest

    @property
    def has_goal(self) -> bool:
        return self.goal is not None

    @property
    def is_met(self) -> bool:
        """Whether the median reaches the goal."""
        assert self.goal is not None, "a figure with a goal"
        return self.median <= self.goal if self.at_most else self.median >= self.goal

    def __str__(self) -> str:
        text = shown(self.median, self.unit)
        return f"{text} ({self.range})" if self.has_range else text

    @property
    def range(self) -> str:
        """The lowest and highest; empty of a single round."""
        if not self.has_range:
            return ""
        return f"{shown(self.lowest, self.unit)} to {shown(self.highest, self.unit)}"


@dataclass(frozen=True, slots=True)
class Column:
    """A figure that every way has whose turns have the numbers for it.

    `of` is a number of a turn, or one over another: "rows/seconds". Where the unit is
    ms the number is seconds, and where it is % a share.
    """

    name: str
    of: str | Callable[[Turn], float]
    unit: str = ""
    over: str = ""  # the way, of the same case, that a round's figure is divided by
    goals: Mapping[str, float] = field(default_factory=dict)  # by way
    at_most: bool = False  # a goal is a bound from above

    def read(self, turn: Turn) -> float:
        """The number of one turn, or `KeyError`."""
        if not isinstance(self.of, str):
            return self.of(turn)
        name, _, divisor = self.of.partition("/")
        scale = {"%": 100.0, "ms": 1e3}.get(self.unit, 1.0)
        return scale * turn[name] / (turn[divisor] if divisor else 1.0)


@dataclass(frozen=True, slots=True)
class Measure:
    """A question, and how turns answer it.

    `ways` opens what they need on the stack, which is closed after the last turn.
    """

    name: str
    claim: str
    page: str  # the heading of its page in docs/benchmarks
    options: type[Options]
    ways: Callable[[Any, ExitStack], Mapping[str, Way]]
    figures: Callable[[Rounds], Sequence[Figure]]


def by_columns(*columns: Column) -> Callable[[Rounds], list[Figure]]:
    """The figures of these columns, for every way."""

    def figures(rounds: Rounds) -> list[Figure]:
        return [
            Figure.of(
                way,
                column.name,
                values,
                TIMES if column.over else column.unit,
                goal=column.goals.get(way),
                at_most=column.at_most,
            )
            for way in rounds
            for column in columns
            if (values := spread_of(rounds, way, column)) is not None
        ]

    return figures


def spread_of(rounds: Rounds, way: str, column: Column) -> Spread | None:
    """A column of one way over all rounds; None where turns lack its numbers, or for its base."""
    case = case_of(way)
    base = case + column.over
    if column.over == FIRST:
        base = next(each for each in rounds if case_of(each) == case)
    if column.over and (base == way or base not in rounds):
        return None
    try:
        values = [column.read(turn) for turn in rounds[way]]
        if column.over:
            pairs = zip(values, map(column.read, rounds[base]), strict=True)
            values = [own / other for own, other in pairs]
    except KeyError:
        return None
    return spread(values)


def percentiles(times_s: Sequence[float], of: str = "") -> Turn:
    """The median and the 99th percentile of times, as numbers of a turn: `p50_s`, `p99_s`."""
    return {f"{of}p{mark}_s": float(np.percentile(times_s, mark)) for mark in (50, 99)}


def counted(count: int, noun: str) -> str:
    """A number of things: "1 row", "8 rows"."""
    return f"{count} {noun}" + "s" * (count != 1)


def case_of(way: str) -> str:
    """The beginning of a way's name that is its case, with what follows it; or nothing."""
    case, mark, _ = way.rpartition(CASE)
    return case + mark


def rounded(value: float, unit: str) -> float:
    """Two digits behind the point of ratios, four of cosines, three in all of others."""
    if unit == TIMES:
        return round(value, 2 if abs(value) >= 0.1 else 3)
    if unit in EXACT:
        return round(value, 4)
    if unit == "%":
        return round(value, 1)
    return float(f"{value:.3g}")


def shown(value: float, unit: str) -> str:
    """A number as a table has it."""
    if unit == TIMES:
        _, _, decimals = str(float(value)).partition(".")
        return f"{value:.{max(2, len(decimals))}f}"
    if unit in EXACT:
        return f"{value:.4f}"
    text = f"{value:,}"
    return text.removesuffix(".0")


def titled(figure: Figure) -> str:
    """A column's name with its unit, where the name alone does not say it."""
    said = figure.unit in ("", TIMES, *EXACT)
    return figure.column if said else f"{figure.column}, {figure.unit}"


def tables(
    figures: Iterable[Figure],
) -> dict[str, tuple[list[str], dict[str, dict[str, Figure]]]]:
    """By table: the columns, and the figures by row and column, all in the order they came."""
    found: dict[str, tuple[list[str], dict[str, dict[str, Figure]]]] = {}
    for figure in figures:
        columns, rows = found.setdefault(figure.table, ([], {}))
        title = titled(figure)
        if title not in columns:
            columns.append(title)
        rows.setdefault(figure.row, {})[title] = figure
    return found
