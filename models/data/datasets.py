"""Read labelled texts from TSV, CSV or JSONL, and split them.

Knows nothing about models or tokenizers. The formats:

    .tsv, .txt        `label<TAB>text` per line, no quoting; or a header naming `label` and `text`
    .csv              a header naming `label` and `text`; quoting as spreadsheets write it
    .jsonl, .ndjson   one object per line with `label` and `text`

What is labelled may be a pair of texts, such as a statement and what it is to follow from: its
second is `text_pair`, in a header or an object, and then every row has one.

A split is stratified (every label keeps its share) and depends only on the rows and the seed.
"""

import csv
import json
import random
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TextIO, TypeVar

from models.errors import DatasetError
from models.remarks import remark

PAIR = "text_pair"


class AnyExample(Protocol):
    """One row of a file; `content` is all that training may depend on."""

    @property
    def content(self) -> tuple[object, ...]: ...


E = TypeVar("E", bound=AnyExample)


@dataclass(frozen=True, slots=True)
class Columns:
    """Names in a file of the label, the text, and the second text of a pair."""

    label: str = "label"
    text: str = "text"
    text_pair: str = PAIR

    @property
    def required(self) -> tuple[str, ...]:
        """Columns without which a row says nothing; the second text is one, where it was named."""
        named = (self.text_pair,) if self.text_pair != PAIR else ()
        return (self.label, self.text, *named)

    def places(self, header: Sequence[str]) -> list[int] | None:
        """The places of label, text and second text; None where the row is no such header.

        A header without the second text gives two places. Case counts where names differ by it.
        """
        exact = [name.strip() for name in header]
        names = exact if set(self.required) <= set(exact) else [name.lower() for name in exact]
        if not set(self.required) <= set(names):
            return None
        every = (self.label, self.text, self.text_pair)
        return [names.index(name) for name in every if name in names]


DEFAULT_COLUMNS = Columns()


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled text, or pair; `line` is where it stands in its file, counted from 1."""

    line: int
    label: str
    text: str
    text_pair: str = ""  # the second of a pair; empty: there is none

    @property
    def content(self) -> tuple[object, ...]:
        return (self.label, self.text, self.text_pair)[: 3 if self.text_pair else 2]

    @property
    def text_or_pair(self) -> str | tuple[str, str]:
        return (self.text, self.text_pair) if self.text_pair else self.text


@dataclass(frozen=True, slots=True)
class Examples(Generic[E]):
    """Examples in the order of their file; `name` is the file's, without folders."""

    name: str
    examples: tuple[E, ...]

    def __len__(self) -> int:
        return len(self.examples)

    def at(self, places: Iterable[int]) -> Self:
        """A dataset of the same name with the examples at these places."""
        return replace(self, examples=tuple(self.examples[place] for place in places))


@dataclass(frozen=True, slots=True)
class Dataset(Examples[Example]):
    """Labelled texts, or pairs."""

    def labels(self) -> tuple[str, ...]:
        """Each label once, sorted."""
        return tuple(sorted({example.label for example in self.examples}))

    @property
    def has_pairs(self) -> bool:
        return bool(self.examples and self.examples[0].text_pair)

    def check(self, held_out: Sequence["Dataset"]) -> None:
        labels = self.labels()
        if len(labels) < 2:
            raise DatasetError(f"{self.name} has only the label {labels[0]}, 2 are needed")
        for part in held_out:
            for example in part.examples:
                if example.label not in labels:
                    raise DatasetError(
                        f"{part.name}:{example.line}: label {example.label!r} is not among "
                        f"those of the training data: {', '.join(labels)}"
                    )
                if bool(example.text_pair) != self.has_pairs:
                    raise DatasetError(
                        f"{part.name}:{example.line}: the training data has "
                        f"{'pairs' if self.has_pairs else 'no pairs'} of texts, this row differs"
                    )


class AnyDataset(Protocol):
    """Examples of a task, in the order of their file."""

    @property
    def name(self) -> str: ...

    @property
    def examples(self) -> Sequence[AnyExample]: ...

    def __len__(self) -> int: ...

    def check(self, held_out: Sequence[Self]) -> None:
        """Raise DatasetError unless this can be trained on, and judged by what is held out."""
        ...


D = TypeVar("D", bound=AnyDataset)


@dataclass(frozen=True, slots=True)
class Splits(Generic[D]):
    """The rows for training, for choosing the best epoch and, optionally, for the report."""

    train: D
    validation: D
    test: D | None = None

    def __post_init__(self) -> None:
        self.train.check([part for part in (self.validation, self.test) if part is not None])


AnySplits = Splits[Any]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """While a file of text is read, turn what goes wrong into a DatasetError."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} cannot be read as UTF-8 text: {error}") from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error


def read_dataset(path: Path, columns: Columns = DEFAULT_COLUMNS) -> Dataset:
    """Rows of a file.

    Remarks on texts that it labels differently in several rows, and on labels that look alike.
    """
    readers = {
        ".tsv": _read_tsv,
        ".txt": _read_tsv,
        ".csv": _read_csv,
        ".jsonl": _read_jsonl,
        ".ndjson": _read_jsonl,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DatasetError(f"{path}: the name must end in one of {', '.join(readers)}")
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        examples = tuple(_checked(path, example) for example in reader(path, file, columns))
    if not examples:
        raise DatasetError(f"{path} holds no rows")
    single = [example for example in examples if not example.text_pair]
    if 0 < len(single) < len(examples):
        raise DatasetError(
            f"{path}:{single[0].line}: no {columns.text_pair}, but other rows have one"
        )
    _remark_on_contradictions(path.name, examples)
    _remark_on_like_labels(path.name, examples)
    return Dataset(path.name, examples)


def _remark_on_contradictions(name: str, examples: Sequence[Example]) -> None:
    first: dict[tuple[str, str], Example] = {}
    contradicted: dict[tuple[str, str], tuple[Example, Example]] = {}
    for example in examples:
        key = example.text, example.text_pair
        earlier = first.setdefault(key, example)
        if earlier.label != example.label:
            contradicted.setdefault(key, (earlier, example))
    if contradicted:
        one, other = next(iter(contradicted.values()))
        remark(
            f"{name}: {len(contradicted)} of {len(first)} different texts have more than one "
            f"label, of which a classifier can learn one; the first is {one.label!r} in line "
            f"{one.line} and {other.label!r} in line {other.line}"
        )


def _remark_on_like_labels(name: str, examples: Sequence[Example]) -> None:
    """Labels that differ in case, spaces or the form of a letter alone are often one, misspelt."""
    counts = Counter(example.label for example in examples)
    alike: dict[str, list[str]] = {}
    for label in sorted(counts):
        key = " ".join(unicodedata.normalize("NFKC", label).casefold().split())
        alike.setdefault(key, []).append(label)
    for labels in alike.values():
        if len(labels) > 1:
            listed = " and ".join(f"{label!r} ({counts[label]} rows)" for label in labels)
            remark(
                f"{name}: the labels {listed} differ in case, spaces or the form of a letter "
                "alone, and are learnt as different ones: write them alike if they are the same"
            )


def split(dataset: Dataset, fractions: Sequence[float], seed: int) -> list[Dataset]:
    """Return what remains, then one held-out part per fraction; rows keep the file's order.

    A held-out part gets at least one row of every label, unless its fraction is 0. All rows of a
    label that has too few for that remain, with a remark.
    """
    parts: list[list[int]] = [[] for _ in range(len(fractions) + 1)]
    shuffler = random.Random(f"split {seed}")  # noqa: S311 - to reproduce, not to keep secret
    rare: dict[str, int] = {}  # labels with too few rows to hold any out
    for label, count in sorted(Counter(example.label for example in dataset.examples).items()):
        rows = [i for i, example in enumerate(dataset.examples) if example.label == label]
        shuffler.shuffle(rows)
        sizes = [max(1, round(count * fraction)) if fraction else 0 for fraction in fractions]
        if sum(sizes) >= count:
            rare[label] = count
            sizes = [0] * len(fractions)
        for part, size in enumerate(sizes, start=1):
            parts[part] += rows[:size]
            rows = rows[size:]
        parts[0] += rows
    if rare:
        _remark_on_rare_labels(dataset, rare)
    return [dataset.at(sorted(part)) for part in parts]


def _remark_on_rare_labels(dataset: Dataset, rare: Mapping[str, int]) -> None:
    """Raises DatasetError where no label has enough rows: nothing could be judged."""
    lines = {example.label: example.line for example in reversed(dataset.examples)}
    label, count = next(iter(rare.items()))
    first = f"{label!r} with {count}, in line {lines[label]}"
    if len(rare) == len(lines):
        raise DatasetError(
            f"{dataset.name}: no label has enough rows to hold some out and train on the rest "
            f"(the first is {first}); add rows, or give files of their own: --validation FILE "
            "and --test-file FILE"
        )
    remark(
        f"{dataset.name}: {len(rare)} of {len(lines)} labels have too few rows to hold any out "
        f"(the first is {first}); all of them are trained on, so no figure says how well these "
        "labels are found"
    )


def split_groups(
    name: str, groups: Sequence[Hashable], fractions: Sequence[float], seed: int
) -> list[list[int]]:
    """Places of rows that remain, then those of one held-out part per fraction.

    `groups` says for each row which others it must not be parted from. A held-out part gets at
    least one group, unless its fraction is 0.
    """
    order = list(dict.fromkeys(groups))
    random.Random(f"split {seed}").shuffle(order)  # noqa: S311 - to reproduce
    sizes = [max(1, round(len(order) * fraction)) if fraction else 0 for fraction in fractions]
    if sum(sizes) >= len(order):
        raise DatasetError(
            f"{name} has {len(order)} rows that may be parted, too few to hold out "
            f"{' and '.join(map(str, sizes))} and train on the rest; add rows, or give a file of "
            "its own to what is held out"
        )
    part_of: dict[Hashable, int] = {}
    for part, size in enumerate(sizes, start=1):
        part_of |= dict.fromkeys(order[:size], part)
        order = order[size:]
    parts: list[list[int]] = [[] for _ in range(len(fractions) + 1)]
    for place, group in enumerate(groups):
        parts[part_of.get(group, 0)].append(place)
    return parts


def _checked(path: Path, example: Example) -> Example:
    for column, value in (("label", example.label), ("text", example.text)):
        if not value.strip():
            raise DatasetError(f"{path}:{example.line}: the {column} is empty")
    return example


def _read_tsv(path: Path, file: TextIO, columns: Columns) -> Iterator[Example]:
    places = None
    for line, content in enumerate(file, start=1):
        row = content.rstrip("\r\n")
        if not row.strip():
            continue
        if line == 1:
            places = columns.places(row.split("\t"))
            if places:
                continue
            if columns != DEFAULT_COLUMNS:
                raise _no_header(path, columns, row.split("\t"))
        fields = row.split("\t") if places else row.split("\t", maxsplit=1)
        if len(fields) <= max(places or [0, 1]):
            raise DatasetError(f"{path}:{line}: expected label<TAB>text, found {row[:60]!r}")
        yield Example(line, *(fields[place] for place in places or [0, 1]))


def _read_csv(path: Path, file: TextIO, columns: Columns) -> Iterator[Example]:
    rows = csv.reader(file, strict=True)
    try:
        header = next(rows, [])
        places = columns.places(header)
        if places is None:
            raise _no_header(path, columns, header)
        for row in rows:
            if not row:
                continue
            if len(row) <= max(places):
                raise DatasetError(f"{path}:{rows.line_num}: the row has {len(row)} columns only")
            yield Example(rows.line_num, *(row[place] for place in places))
    except csv.Error as error:
        raise DatasetError(f"{path}:{rows.line_num}: {error}") from error


def _no_header(path: Path, columns: Columns, header: Sequence[str]) -> DatasetError:
    return DatasetError(
        f"{path}:1: expected a header naming the columns {' and '.join(columns.required)}, found "
        f"{', '.join(header)[:60]!r}; --label-column, --text-column and --pair-column name others"
    )


def _read_jsonl(path: Path, file: TextIO, columns: Columns) -> Iterator[Example]:
    for line, content in enumerate(file, start=1):
        if not content.strip():
            continue
        try:
            values = json.loads(content)
        except json.JSONDecodeError as error:
            raise DatasetError(f"{path}:{line}: not JSON: {error}") from error
        if not isinstance(values, dict) or not set(columns.required) <= values.keys():
            names = " and ".join(columns.required)
            raise DatasetError(
                f"{path}:{line}: expected an object with {names}; --label-column, --text-column "
                "and --pair-column name others"
            )
        label, text, pair = (
            values[columns.label],
            values[columns.text],
            values.get(columns.text_pair, ""),
        )
        if not isinstance(text, str) or not isinstance(label, str | int | float):
            raise DatasetError(
                f"{path}:{line}: {columns.text} must be a string, {columns.label} a string or a "
                "number"
            )
        if not isinstance(pair, str):
            raise DatasetError(f"{path}:{line}: {columns.text_pair} must be a string")
        yield Example(line, str(label), text, pair)
