"""Read sentences with a tag for each word, as the CoNLL tasks write them.

Knows nothing about models or tokenizers. A line has a word, a tab or spaces, and its tag (columns
between the two are skipped); a blank line ends a sentence.

Entities from IOB tags, and how well predicted ones agree with true ones (pure).

`B-person` begins an entity of that type and `I-person` goes on with one; `O` is outside of all.
Decoding is that of conlleval, the script of the CoNLL-2000 and 2003 tasks: an `I-` that follows
nothing of its type begins an entity as well, and only entities with equal ends and type agree.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from models.data.datasets import Examples, reading, split_groups
from models.errors import DatasetError
from models.remarks import remark

OUTSIDE = "O"


class Entity(NamedTuple):
    """Words [start, end) of a sentence."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of one type or label, or of all together: found, said and true."""

    correct: int
    predicted: int
    true: int

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        both = self.predicted + self.true
        return 2 * self.correct / both if both else 0.0


def tag_names(types: Iterable[str]) -> tuple[str, ...]:
    """All tags of some types: what a token classifier's labels are."""
    inside = (f"{prefix}-{kind}" for kind in sorted(set(types)) for prefix in "BI")
    return (OUTSIDE, *inside)


def type_of(tag: str) -> str:
    """The type after `B-` or `I-`; empty outside."""
    return tag[2:]


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence in their order."""
    found: list[Entity] = []
    start = None
    for place, tag in enumerate([*tags, OUTSIDE]):
        goes_on = start is not None and tag == f"I-{type_of(tags[start])}"
        if start is not None and not goes_on:
            found.append(Entity(start, place, type_of(tags[start])))
            start = None
        if tag != OUTSIDE and not goes_on:
            start = place
    return found


def count_entities(
    true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> dict[str, Counts]:
    """The scores of every type that occurs, sorted, from the tags of the same sentences."""
    correct, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for true_tags, predicted_tags in zip(true, predicted, strict=True):
        theirs, ours = set(entities_of(true_tags)), set(entities_of(predicted_tags))
        wanted.update(entity.type for entity in theirs)
        found.update(entity.type for entity in ours)
        correct.update(entity.type for entity in theirs & ours)
    return {
        kind: Counts(correct[kind], found[kind], wanted[kind]) for kind in sorted(wanted | found)
    }


def total(counts: Iterable[Counts]) -> Counts:
    """All types together, each entity counting the same: conlleval's overall figures."""
    found = list(counts)
    return Counts(
        correct=sum(each.correct for each in found),
        predicted=sum(each.predicted for each in found),
        true=sum(each.true for each in found),
    )


TAG = re.compile(r"O|[BI]-\S+")
BLANK = " \t\r\ufeff"  # of a line between sentences; files that were joined have marks inside
DOCUMENT_START = "-DOCSTART-"  # in CoNLL-2003, in place of a sentence


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """Words and their IOB tags; `line` is where the sentence begins, counted from 1."""

    line: int
    words: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def content(self) -> tuple[object, ...]:
        return self.words, self.tags

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class TaggedDataset(Examples[TaggedSentence]):
    """Sentences with tagged words."""

    def split(self, fractions: Sequence[float], seed: int) -> list["TaggedDataset"]:
        """Return what remains, then one held-out part per fraction.

        The last sentences of a type stay among those that are trained on, with a remark.
        """
        remaining, *parts = split_groups(self.name, range(len(self)), fractions, seed)
        learnt = self.at(remaining).types()
        kept: dict[str, int] = {}  # sentences by the first type that they alone have
        for part in parts:
            for place in list(part):
                if unknown := sorted(self.at([place]).types() - learnt):
                    part.remove(place)
                    remaining.append(place)
                    kept[unknown[0]] = place
                    learnt |= self.at([place]).types()
        self._remark_on_kept(kept, parts, fractions)
        return [self.at(sorted(part)) for part in (remaining, *parts)]

    def _remark_on_kept(
        self, kept: dict[str, int], parts: Sequence[Sequence[int]], fractions: Sequence[float]
    ) -> None:
        """Raises DatasetError where nothing is left to judge by."""
        if not kept:
            return
        kind, place = next(iter(kept.items()))
        first = f"{kind!r}, in the sentence of line {self.examples[place].line}"
        if any(fraction and not part for part, fraction in zip(parts, fractions, strict=True)):
            raise DatasetError(
                f"{self.name}: every sentence that could be held out is the only one of a type "
                f"(the first is {first}); add sentences, or give files of their own: --validation "
                "FILE and --test-file FILE"
            )
        remark(
            f"{self.name}: {len(kept)} types would have been held out whole (the first is "
            f"{first}); one sentence of each is trained on instead"
        )

    def types(self) -> set[str]:
        tags = {tag for sentence in self.examples for tag in sentence.tags}
        return {type_of(tag) for tag in tags - {OUTSIDE}}

    def labels(self) -> tuple[str, ...]:
        """The tags of all types that occur: `O`, and `B-` and `I-` of each."""
        return tag_names(self.types())

    def check(self, held_out: Sequence["TaggedDataset"]) -> None:
        types = self.types()
        if not types:
            raise DatasetError(f"{self.name} has no entity: all tags are {OUTSIDE}")
        for part in held_out:
            if unknown := sorted(part.types() - types):
                raise DatasetError(
                    f"{part.name}: the type {unknown[0]!r} is not among those of the training "
                    f"data: {', '.join(sorted(types))}"
                )


def read_sentences(path: Path) -> TaggedDataset:
    with reading(path):
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    examples = tuple(_sentences(path, lines))
    if not examples:
        raise DatasetError(f"{path} holds no sentences")
    return TaggedDataset(path.name, examples)


def _sentences(path: Path, lines: Sequence[str]) -> Iterator[TaggedSentence]:
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*lines, ""], start=1):
        if line.strip(BLANK) and not line.startswith(DOCUMENT_START):
            word, tag = _word_and_tag(path, number, line.rstrip("\r"))
            words.append(word)
            tags.append(tag)
        elif words:
            yield TaggedSentence(number - len(words), tuple(words), tuple(tags))
            words, tags = [], []


def _word_and_tag(path: Path, number: int, line: str) -> tuple[str, str]:
    columns = line.split("\t") if "\t" in line else line.split()
    word, tag = columns[0].strip(), columns[-1].strip()
    if len(columns) < 2 or not word or not TAG.fullmatch(tag):
        raise DatasetError(
            f"{path}:{number}: expected a word, a tab and a tag (O, B-type or I-type), "
            f"found {line[:60]!r}"
        )
    return word, tag
