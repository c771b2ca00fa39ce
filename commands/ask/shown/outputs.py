"""Printed answers to texts: a growing table, a JSON object per text, or one document.

A terminal gets tables; JSON is written as answers come, so that any number of texts is possible.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement

from commands.ask.asked import Asked
from commands.ask.lines import Line
from commands.ask.message_json import json_fields
from commands.ask.options import console, is_stdin
from commands.ask.shown.tables import Table
from service.errors import SettingError

Draw = Callable[[Sequence[str], Any], Table]  # texts and the response to them
FREE_COLUMN = "text"  # takes the width that the others leave


class Output(ABC):
    """A context manager that prints answers."""

    def __enter__(self) -> Self:
        return self

    def refuse(self, noun: str, number: int, reason: str) -> None:  # noqa: B027 - most say no more
        """Note a text without an answer, which stderr names already; `noun` is that for a text."""

    @abstractmethod
    def write(self, lines: Sequence[Line], response: Any, *, is_only: bool) -> None:
        """Print one response; `is_only` if it answers all texts."""

    def __exit__(  # noqa: B027 - most outputs have no end
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


def output_of(asked: Asked, given: Sequence[str], field: str = "results") -> Output:
    """The form of printed answers; `field` of an answer has an element per text."""
    if asked.as_json and asked.as_ndjson:
        raise SettingError("--json and --ndjson are both set, expected one of them")
    if asked.as_ndjson:
        return ObjectPerText(field)
    if asked.as_json:
        return OneDocument(field, has_lines=is_stdin(given))
    return GrowingTable(asked.draw, asked.draw_rows)


class GrowingTable(Output):
    """A complete table for a single answer, else rows under one header."""

    def __init__(self, draw: Draw, draw_rows: Draw) -> None:
        self._draw = draw
        self._draw_rows = draw_rows
        self._widths: list[int] = []  # of all columns, as the first rows have them

    def write(self, lines: Sequence[Line], response: Any, *, is_only: bool) -> None:
        texts = [line.text for line in lines]
        if is_only:
            console.print(self._draw(texts, response))
            return
        table = self._draw_rows(texts, response)
        table.below, table.box, table.show_edge = "", box.SIMPLE_HEAD, False
        table.show_header = not self._widths
        self._widths = self._widths or _widths(table, console, console.options)
        for column, width in zip(table.columns, self._widths, strict=True):
            column.width = width
            if column.header == FREE_COLUMN:
                column.no_wrap, column.overflow = True, "ellipsis"
        console.print(table)


def _widths(table: Table, console: Console, options: ConsoleOptions) -> list[int]:
    """The widths of columns, so that later rows align with these."""
    widths = [
        max(
            Measurement.get(console, options, cell).maximum
            for cell in (column.header, *column.cells)
        )
        for column in table.columns
    ]
    free = next(i for i, column in enumerate(table.columns) if column.header == FREE_COLUMN)
    others = sum(widths) - widths[free] + 3 * len(widths)
    widths[free] = max(options.max_width - others, 12)
    return widths


class ObjectPerText(Output):
    """A line of JSON for each text."""

    def __init__(self, field: str) -> None:
        self._field = field

    def write(self, lines: Sequence[Line], response: Any, *, is_only: bool) -> None:  # noqa: ARG002
        for line, result in zip(lines, getattr(response, self._field), strict=True):
            found = {"line": line.number, "text": line.text, **json_fields(result)}
            sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")
        sys.stdout.flush()


class OneDocument(Output):
    """One JSON document with all results, written as they come.

    Last are the sums of tokens and times, and the refused texts by their numbers, if there are any.
    """

    def __init__(self, field: str, *, has_lines: bool) -> None:
        self._field = field
        self._has_lines = has_lines
        self._rest: dict[str, Any] = {}  # all but results, which it follows
        self._refused: list[dict[str, Any]] = []
        self._has_begun = False

    def refuse(self, noun: str, number: int, reason: str) -> None:
        self._refused.append({noun: number, "error": reason})

    def write(self, lines: Sequence[Line], response: Any, *, is_only: bool) -> None:  # noqa: ARG002
        fields = json_fields(response)
        results = fields.pop(self._field)
        found = [
            {"line": line.number, **result} if self._has_lines else result
            for line, result in zip(lines, results, strict=True)
        ]
        start = ", " if self._has_begun else self._start()
        content = start + ", ".join(json.dumps(each, ensure_ascii=False) for each in found)
        # The end of the document is stored before the write, which may be interrupted.
        self._has_begun, self._rest = True, _summed(self._rest, fields)
        sys.stdout.write(content)
        sys.stdout.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the document, also if the command fails after its first answer."""
        if self._has_begun:
            refused = {"refused": self._refused} if self._refused else {}
            rest = json.dumps(self._rest | refused, ensure_ascii=False)
            sys.stdout.write(f"], {rest.removeprefix('{')}\n")
        elif error is None:
            sys.stdout.write(self._start() + "]}\n")
        sys.stdout.flush()

    def _start(self) -> str:
        return f'{{"{self._field}": ['


def _summed(fields: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """The sums of numbers; other values are unchanged."""
    if not fields:
        return others
    summed = dict(fields)
    for name, value in others.items():
        if isinstance(value, dict):
            summed[name] = _summed(fields[name], value)
        elif isinstance(value, float | int):
            summed[name] = fields[name] + value
    return summed
