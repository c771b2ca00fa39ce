"""Parquet in and out, by pyarrow (the extra `bulk`).

What is written depends on the results only: row groups are windows, and the settings of the writer
are fixed here. Memory holds one window.
"""

import io
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commands.ask.bulk.documents import DOCUMENTS, checked_ranking, checked_text
from commands.ask.bulk.forms import reason_of
from commands.ask.bulk.rows import Rows
from commands.ask.bulk.windows import Window
from commands.ask.lines import EMPTY, Line, take_first
from service.errors import SettingError

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise SettingError(
        "Parquet files need pyarrow, which is not installed: pip install 'attendant[bulk]'"
    ) from error

BATCH_ROWS = 1_024  # read at once
WRITER = {"compression": "zstd", "use_dictionary": False, "write_statistics": True}


class TableTexts:
    """The rows of a Parquet file as lines; a row without a text has a fault."""

    noun = "row"

    def __init__(self, file: "pq.ParquetFile", names: Sequence[str], first: int) -> None:
        """`first` rows are behind."""
        self.num_empty = 0
        self.total: int | None = file.metadata.num_rows
        self._names = names
        self._number = first
        self._ready: deque[Line] = deque()
        self._batches = _batches_from(file, names, first)
        self.has_ended = False

    @classmethod
    @contextmanager
    def open(cls, path: Path, names: Sequence[str], first: int) -> "Iterator[TableTexts]":
        """The columns of these names. Raises `SettingError`."""
        try:
            file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise SettingError(f"the file '{path}' is no Parquet file: {error}") from error
        with file:
            absent = [name for name in names if name not in file.schema_arrow.names]
            if absent:
                raise SettingError(
                    f"the file '{path}' has no column '{absent[0]}', it has "
                    f"{', '.join(file.schema_arrow.names)}: --field names the column of texts"
                )
            yield cls(file, names, first)

    def take(self, most: int) -> list[Line]:
        while len(self._ready) < most:
            batch = next(self._batches, None)
            if batch is None:
                break
            self._add(batch)
        taken = take_first(self._ready, most)
        self.has_ended = not self._ready and self._number >= (self.total or 0)
        return taken

    def _add(self, batch: "pa.RecordBatch") -> None:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            self._number += 1
            text, fault = self._text_of(values)
            self.num_empty += fault == EMPTY
            self._ready.append(Line(self._number, text, self._number, fault))

    def _text_of(self, values: Sequence[Any]) -> tuple[str, str]:
        if self._names[-1] == DOCUMENTS:
            return checked_ranking(*values)
        (value,) = values
        return ("", EMPTY) if value is None else checked_text(value, self._names[0], "column")


def _batches_from(
    file: "pq.ParquetFile", names: Sequence[str], first: int
) -> "Iterator[pa.RecordBatch]":
    """Batches of the rows behind the first ones, whose groups are not read."""
    metadata, num_behind, group = file.metadata, first, 0
    while group < metadata.num_row_groups and num_behind >= metadata.row_group(group).num_rows:
        num_behind -= metadata.row_group(group).num_rows
        group += 1
    groups = list(range(group, metadata.num_row_groups))
    for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=list(names)):
        ordered = batch.select(list(names))
        if num_behind < ordered.num_rows:
            yield ordered.slice(num_behind)
        num_behind = max(0, num_behind - ordered.num_rows)


def part_of(window: Window, rows: Rows) -> bytes:
    """A Parquet file of one window."""
    reasons = {refusal.line.number: reason_of(refusal) for refusal in window.refused}
    numbers = range(window.first, window.first + window.num_lines)
    schema = _schema_of(rows)
    cells = [None if result is None else rows.cells_of(result) for result in window.results]
    columns = [
        pa.array(list(numbers), pa.int64()),
        *(
            pa.array([None if row is None else row[place] for row in cells], field.type)
            for place, field in enumerate(list(schema)[1:-1])
        ),
        pa.array([reasons.get(number) for number in numbers], pa.string()),
    ]
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, schema, **WRITER) as writer:
        writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    return buffer.getvalue()


def join_parts(parts: Sequence[Path], whole: Path, rows: Rows) -> int:
    """Write the rows of all parts into one file, a row group for each; returns their number."""
    num_lines = 0
    with whole.open("wb") as file:
        with pq.ParquetWriter(file, _schema_of(rows), **WRITER) as writer:
            for part in parts:
                table = pq.read_table(part)
                num_lines += table.num_rows
                writer.write_table(table)
        file.flush()
        os.fsync(file.fileno())
    return num_lines


def num_rows_of(path: Path) -> int:
    """The rows of a file, of which only the end is read."""
    return int(pq.read_metadata(path).num_rows)


def _schema_of(rows: Rows) -> "pa.Schema":
    fields = [("line", pa.int64())]
    fields += [(name, _type_of(kind)) for name, kind in rows.columns().items()]
    return pa.schema([*fields, ("error", pa.string())])


def _type_of(kind: str) -> "pa.DataType":
    name, *parts = kind.split()
    if name == "vector":
        return pa.list_(pa.from_numpy_dtype(parts[0]), int(parts[1]))
    entity = [("label", pa.string()), ("text", pa.string()), ("start", pa.int64())]
    entity += [("end", pa.int64()), ("score", pa.float32())]
    return {
        "text": pa.string(),
        "float": pa.float32(),
        "texts": pa.list_(pa.string()),
        "floats": pa.list_(pa.float32()),
        "entities": pa.list_(pa.struct(entity)),
    }[name]
