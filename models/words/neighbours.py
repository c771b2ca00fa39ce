"""Which words are near which, and what a is to b as c is to (Mikolov et al. 2013).

Knows nothing about networks: a table of vectors and its words. Similar means a small angle.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: V words, D vector size

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import Tensor
from torch.nn import functional as F

from models.errors import SettingError
from models.words.vocabulary import SPECIAL


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
