"""Entities from IOB tags, and how well predicted ones agree with true ones (pure).

`B-person` begins an entity of that type and `I-person` goes on with one; `O` is outside of all.
Decoding is that of conlleval, the script of the CoNLL-2000 and 2003 tasks: an `I-` that follows
nothing of its type begins an entity as well, and only entities with equal ends and type agree.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OUTSIDE = "O"


class Entity(NamedTuple):
    """Words [start, end) of a sentence."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, slots=True)
class EntityCounts:
    """Of one type, or of all together."""

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
    """What stands after `B-` or `I-`; empty outside."""
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
) -> dict[str, EntityCounts]:
    """Of every type that occurs, sorted, from the tags of the same sentences."""
    correct, found, wanted = Counter[str](), Counter[str](), Counter[str]()
    for true_tags, predicted_tags in zip(true, predicted, strict=True):
        theirs, ours = set(entities_of(true_tags)), set(entities_of(predicted_tags))
        wanted.update(entity.type for entity in theirs)
        found.update(entity.type for entity in ours)
        correct.update(entity.type for entity in theirs & ours)
    return {
        kind: EntityCounts(correct[kind], found[kind], wanted[kind])
        for kind in sorted(wanted | found)
    }


def total(counts: Iterable[EntityCounts]) -> EntityCounts:
    """All types together, each entity counting the same: conlleval's overall figures."""
    found = list(counts)
    return EntityCounts(
        correct=sum(each.correct for each in found),
        predicted=sum(each.predicted for each in found),
        true=sum(each.true for each in found),
    )
