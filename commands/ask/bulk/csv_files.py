"""The texts of a CSV or TSV file with a header, as lines; a field may have line breaks in quotes.

A row's place is its number: what is behind is read again when a job goes on, as only reading tells
where a quoted field ends. Memory holds a few rows.
"""

import csv
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from commands.ask.bulk.documents import checked_text
from commands.ask.lines import EMPTY, MAX_LINE_BYTES, Line, take_first
from service.errors import SettingError

DELIMITERS = {".csv": ",", ".tsv": "\t"}


class CsvTexts:
    """The rows of a file as lines; a row without a text has a fault."""

    noun = "row"
    total: int | None = None  # reading alone tells

    def __init__(self, rows: Iterator[list[str]], name: str, column: int, first: int) -> None:
        """`first` rows are behind."""
        self.num_empty = 0
        self.has_ended = False
        self._rows = rows
        self._name = name
        self._column = column
        self._number = 0
        self._ready: deque[Line] = deque()
        while self._number < first and next(self._rows, None) is not None:
            self._number += 1

    @classmethod
    @contextmanager
    def open(cls, path: Path, name: str, first: int) -> "Iterator[CsvTexts]":
        """The column of that name. Raises `SettingError`."""
        csv.field_size_limit(MAX_LINE_BYTES)
        # Bytes that are no UTF-8 become half surrogates, and their row is refused by itself.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            rows = _rows_of(path, file)
            header = next(rows, [])
            if name not in header:
                raise SettingError(
                    f"the file '{path}' has no column '{name}', it has "
                    f"{', '.join(header)[:200]}: --field names the column of texts"
                )
            yield cls(rows, name, header.index(name), first)

    def take(self, most: int) -> list[Line]:
        while len(self._ready) < most and not self.has_ended:
            row = next(self._rows, None)
            if row is None:
                break
            self._number += 1
            text, fault = self._text_of(row)
            self.num_empty += fault == EMPTY
            self._ready.append(Line(self._number, text, self._number, fault))
        taken = take_first(self._ready, most)
        self.has_ended = not self._ready and len(taken) < most
        return taken

    def _text_of(self, row: list[str]) -> tuple[str, str]:
        if not row:
            return "", EMPTY
        if len(row) <= self._column:
            return (
                "",
                f"has {len(row)} columns, expected at least {self._column + 1}",
            )
        return checked_text(row[self._column], self._name, "column")


def _rows_of(path: Path, file: TextIO) -> Iterator[list[str]]:
    """The rows, or `SettingError` at what is no CSV."""
    rows = csv.reader(file, delimiter=DELIMITERS[path.suffix.lower()])
    try:
        yield from rows
    except csv.Error as error:
        raise SettingError(f"the file '{path}', line {rows.line_num}: {error}") from error
