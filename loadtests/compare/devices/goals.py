"""Goals of the fastest of our ways. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from loadtests.measure.records import Figure, case_of

# What the names of ways begin with.
OURS, THEIRS = "ours", ("torch", "transformers")
CHECKED = "difference of logits"  # the column whose goal is a check


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
