"""Nearest words and analogies of word vectors (Mikolov et al. 2013).

Knows nothing about networks: a table of vectors and its words. Similar means a small angle.

How much vectors know of what words mean, beside what chance would get right.

Knows nothing about training. Corpora of some megabytes teach kinds of words rather than relations:
both are counted, and over how many questions.

A few questions on which word vectors are judged: relations of words, and words of one kind.

Everyday English, Shakespeare's and Python's. What a corpus does not say cannot be asked: questions
with a word that it lacks are left out and not counted.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: V words, D vector size

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from itertools import permutations

import torch
from torch import Tensor
from torch.nn import functional as F

from models.data.vocabulary import SPECIAL
from models.errors import SettingError


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A word, and the cosine of its vector with what was asked for."""

    word: str
    cosine: float


class WordSpace:
    """Words and their directions: vectors [V, D] in the order of the words, special ones first."""

    def __init__(self, words: Sequence[str], vectors_VD: Tensor) -> None:
        self.words = tuple(words)
        self._units_VD = F.normalize(vectors_VD.detach().float(), dim=1)
        self._index = {word: i for i, word in enumerate(words) if i >= len(SPECIAL)}

    def __contains__(self, word: str) -> bool:
        return word in self._index

    @property
    def num_words(self) -> int:
        return len(self._index)

    def nearest(self, word: str, count: int) -> list[Neighbour]:
        """Return the `count` words nearest to one, itself left out."""
        return self._nearest(self._unit(word), [word], count)

    def analogy(self, first: str, minus: str, plus: str, count: int) -> list[Neighbour]:
        """`first - minus + plus` (king - man + woman), these three left out of the answers."""
        query_D = self._unit(first) - self._unit(minus) + self._unit(plus)
        return self._nearest(F.normalize(query_D, dim=0), (first, minus, plus), count)

    def _unit(self, word: str) -> Tensor:
        if word not in self._index:
            alike = get_close_matches(word.lower(), self._index, n=3)
            such_as = f"; spelt alike are {', '.join(alike)}" if alike else ""
            limit = f"one of the {self.num_words} words that have a vector{such_as}"
            raise SettingError("word", word, limit)
        return self._units_VD[self._index[word]]

    def _nearest(self, unit_D: Tensor, left_out: Collection[str], count: int) -> list[Neighbour]:
        cosines_V = self._units_VD @ unit_D
        hidden = [*range(len(SPECIAL)), *(self._index[word] for word in left_out)]
        cosines_V[hidden] = -torch.inf
        count = min(count, self.num_words - len(set(left_out)))
        best = torch.topk(cosines_V, max(0, count))
        return [
            Neighbour(self.words[index], cosine)
            for cosine, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]


# Pairs of one relation: a question is made of any two, as in king - man + woman = queen.
RELATIONS = {
    "family": (
        "man woman, king queen, father mother, son daughter, brother sister, husband wife, "
        "uncle aunt, prince princess, boy girl, lord lady, he she, his her"
    ),
    "plural": (
        "man men, hand hands, day days, word words, eye eyes, friend friends, object objects, "
        "method methods, function functions, argument arguments, name names, type types, film "
        "films, movie movies, character characters"
    ),
    "past": (
        "is was, are were, has had, do did, say said, make made, come came, give gave, go went, "
        "call called, return returned, raise raised, use used"
    ),
    "third person": (
        "make makes, come comes, give gives, return returns, raise raises, call calls, say "
        "says, take takes"
    ),
    "comparative": (
        "good better, bad worse, great greater, high higher, low lower, more most, less least"
    ),
    "opposite": (
        "true false, first last, left right, before after, good bad, old new, day night, start stop"
    ),
}
# Words of one kind: near each other, where vectors know what words mean.
KINDS = {
    "numbers": "one two three four five six seven ten twenty",
    "family": "father mother brother sister son daughter wife husband",
    "rank": "king queen prince duke lord lady princess",
    "pronouns": "he she they we him her them us",
    "modal verbs": "can may must should will shall would could might",
    "containers": "list tuple set dict dictionary sequence mapping",
    "numeric types": "int float complex integer integers decimal",
    "statements": "if while for try with return raise import del",
    "constants": "true false none notimplemented",
    "exceptions": "typeerror valueerror keyerror indexerror attributeerror",
    "praise": "good great fine best excellent brilliant wonderful superb",
    "blame": "bad worst dull awful terrible boring stupid silly",
    "films": "film movie picture documentary comedy thriller drama",
}


def analogies() -> list[tuple[str, str, str, str]]:
    """All questions: first, minus, plus and the answer."""
    return [
        (first, minus, plus, answer)
        for pairs in RELATIONS.values()
        for (minus, first), (plus, answer) in permutations(map(str.split, pairs.split(", ")), 2)
        if len({first, minus, plus, answer}) == 4
    ]


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
        known = [word for word in words.split() if word in space]
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
    """Place of a word among its neighbours, from 0."""
    return next((place for place, word in enumerate(found) if word == answer), None)


def _share(values: Iterable[float]) -> float:
    """Mean of the values, a truth being 1."""
    counted = list(values)
    return sum(counted) / max(1, len(counted))
