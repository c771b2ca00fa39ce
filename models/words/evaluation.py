"""How much vectors know of what words mean, beside what chance would get right.

Knows nothing about training. Corpora of some megabytes teach kinds of words rather than relations:
both are counted, and over how many questions.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from models.words.neighbours import WordSpace
from models.words.questions import KINDS, analogies

NEIGHBOURS = 5  # an answer counts if it is among this number of nearest words


@dataclass(frozen=True, slots=True)
class WordEvaluation:
    """Shares of 0 to 1; those of no questions are 0."""

    analogy_questions: int
    analogy_first: float  # the answer is the nearest word
    analogy_among_5: float
    analogy_chance: float  # of a random word among the five
    kind_questions: int
    kind_among_5: float  # a word of the same kind is among the nearest
    kind_chance: float

    def to_dict(self) -> dict[str, float]:
        return {name: round(float(value), 4) for name, value in asdict(self).items()}


def evaluate(space: WordSpace) -> WordEvaluation:
    """Ask what the vocabulary allows to ask."""
    ranks = [
        _rank(answer, (found.word for found in space.analogy(first, minus, plus, NEIGHBOURS)))
        for first, minus, plus, answer in analogies()
        if all(word in space for word in (first, minus, plus, answer))
    ]
    hits, chances = [], []
    for words in KINDS.values():
        known = [word for word in words if word in space]
        for word in known if len(known) > 1 else ():
            nearest = {found.word for found in space.nearest(word, NEIGHBOURS)}
            hits.append(bool(nearest & set(known)))
            others = (len(known) - 1) / (space.num_words - 1)
            chances.append(1.0 - (1.0 - others) ** NEIGHBOURS)
    return WordEvaluation(
        analogy_questions=len(ranks),
        analogy_first=_share(rank == 0 for rank in ranks),
        analogy_among_5=_share(rank is not None for rank in ranks),
        analogy_chance=NEIGHBOURS / space.num_words,
        kind_questions=len(hits),
        kind_among_5=_share(hits),
        kind_chance=_share(chances),
    )


def _rank(answer: str, found: Iterable[str]) -> int | None:
    """Its place among them, from 0."""
    return next((place for place, word in enumerate(found) if word == answer), None)


def _share(values: Iterable[float]) -> float:
    """Their mean, a truth being 1."""
    counted = list(values)
    return sum(counted) / max(1, len(counted))
