"""The texts of a file, by its ending: .txt, .jsonl, .csv, .tsv or .parquet.

Each line of the file, or row of the table, is one `Line`; an empty one has a fault. Reading may
begin behind any line, at its place: a byte of .txt and .jsonl, a row of a table.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from commands.ask.bulk.documents import DOCUMENTS, QUERY, checked_ranking, checked_text
from commands.ask.lines import StreamedTexts, TextOf, Texts
from service.errors import SettingError

FORMATS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True, slots=True)
class Source:
    """A file of texts."""

    path: Path
    field: str = "text"  # of all but .txt
    has_queries: bool = False  # each line has a query and its documents, in place of a text

    @property
    def format(self) -> str:
        return self.path.suffix.lower()

    def check(self) -> None:
        """Raise `SettingError` for a file that cannot be read, or has another format."""
        if self.format not in FORMATS:
            raise SettingError(
                f"the file '{self.path}' ends with '{self.path.suffix}', expected one of "
                f"{', '.join(FORMATS)}: the ending says how texts are read"
            )
        if self.has_queries and self.format in (".txt", ".csv", ".tsv"):
            raise SettingError(
                f"the file '{self.path}' has texts and no query is given: give QUERY, or a "
                f".jsonl or .parquet file with the fields '{QUERY}' and '{DOCUMENTS}'"
            )
        try:
            with self.path.open("rb"):
                pass
        except OSError as error:
            raise SettingError(
                f"the file '{self.path}' cannot be read: {error.strerror}"
            ) from error

    def identity(self) -> dict[str, object]:
        """Values that tell the file from another one, wherever it is."""
        with self.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        fields = {} if self.format == ".txt" else {"input_field": self._field}
        return {"input_format": self.format, "input_sha256": digest, **fields}

    @contextmanager
    def open(self, num_before: int = 0, place: int = 0) -> Iterator[Texts]:
        """The texts after the given number of lines, the last of which ends at that place."""
        if self.format == ".parquet":
            from commands.ask.bulk.parquet_files import TableTexts

            names = [QUERY, DOCUMENTS] if self.has_queries else [self.field]
            with TableTexts.open(self.path, names, place) as texts:
                yield texts
            return
        if self.format in (".csv", ".tsv"):
            from commands.ask.bulk.csv_files import CsvTexts

            with CsvTexts.open(self.path, self.field, place) as rows:
                yield rows
            return
        with self.path.open("rb", buffering=0) as file:
            file.seek(place)
            yield StreamedTexts(
                file, num_before=num_before, text_of=self._text_of, keeps_empty=True
            )

    @property
    def _field(self) -> str:
        return f"{QUERY}, {DOCUMENTS}" if self.has_queries else self.field

    @property
    def _text_of(self) -> TextOf | None:
        if self.format == ".txt":
            return None
        return ranked_of if self.has_queries else _text_in(self.field)


def _text_in(name: str) -> TextOf:
    """A function that finds the text in a line of JSON."""

    def find(content: str) -> tuple[str, str]:
        fields, fault = _object(content)
        if fault:
            return "", fault
        return checked_text(fields.get(name), name, "field")

    return find


def ranked_of(content: str) -> tuple[str, str]:
    """A line with a query and documents, as it is, or the reason why it cannot be sent."""
    fields, fault = _object(content)
    return ("", fault) if fault else checked_ranking(fields.get(QUERY), fields.get(DOCUMENTS))


def _object(content: str) -> tuple[dict[str, object], str]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        return {}, f"is no JSON: {error}"
    return (fields, "") if isinstance(fields, dict) else ({}, "is no JSON object")
