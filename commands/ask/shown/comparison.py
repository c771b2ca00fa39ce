"""Prompts compared by the words that a model fills in, as commands show them.

Knows nothing of servers, messages or pictures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_NAME = 24  # characters of a prompt's short name


@dataclass(frozen=True, slots=True)
class ComparedWord:
    """A word in several prompts: how likely each makes it."""

    token: str
    logprobs: tuple[float, ...]  # one for each prompt

    @property
    def difference(self) -> float:
        """The difference of its log probabilities with the first and the second prompt."""
        first, second = self.logprobs
        return first - second

    @property
    def spread(self) -> float:
        """Between the prompt that makes it likeliest and the one that does least."""
        return max(self.logprobs) - min(self.logprobs)


@dataclass(frozen=True, slots=True)
class Crossing:
    """Four prompts in which two places each have one of two words: 1908 or 2018, he or she.

    `corners` are the places of the prompts in the order 1908 he, 1908 she, 2018 he, 2018 she.
    """

    outer: tuple[str, str]  # 1908 and 2018
    inner: tuple[str, str]  # he and she
    corners: tuple[int, int, int, int]

    def differences(self, word: ComparedWord) -> tuple[float, float]:
        """The difference of its log probabilities between the inner words, for each outer word."""
        a, b, c, d = (word.logprobs[corner] for corner in self.corners)
        return a - b, c - d

    def change(self, word: ComparedWord) -> float:
        """The change of that difference between the outer words."""
        before, after = self.differences(word)
        return after - before


def compared(prompts: Sequence[Mapping[str, float]]) -> list[ComparedWord]:
    """Words in all prompts by what the prompts differ in, those that differ most first.

    Of two prompts the first one's own words come before the second's. The arguments are words'
    log-probabilities, as in the comparison of prompts that differ in a word: what the model makes
    of that word is what remains when its general taste is subtracted.
    """
    in_all = [word for word in prompts[0] if all(word in prompt for prompt in prompts)]
    words = [ComparedWord(word, tuple(prompt[word] for prompt in prompts)) for word in in_all]
    if len(prompts) == 2:
        return sorted(words, key=lambda word: -word.difference)
    return sorted(words, key=lambda word: -word.spread)


def short_names(prompts: Sequence[str]) -> list[str]:
    """The words in which each prompt differs from the others; or numbers, from 1."""
    rows = [prompt.split() for prompt in prompts]
    if len(set(map(len, rows))) == 1:
        # Places that part the prompts alike tell the same: "he" and, further on, "his".
        places = {
            tuple(map(words.index, words)): words
            for words in reversed(list(zip(*rows, strict=True)))
            if len(set(words)) > 1
        }
        bare = [[word.strip(",.;:!?") or word for word in words] for words in places.values()]
        names = list(map(" ".join, zip(*reversed(bare), strict=True)))
        if len(set(names)) == len(names) and max(map(len, names)) <= MAX_NAME:
            return names
    return [str(number) for number in range(1, len(prompts) + 1)]


def crossing_of(prompts: Sequence[str]) -> Crossing | None:
    """The two words of two places that four prompts cross, if they do."""
    names = [tuple(name.split()) for name in short_names(prompts)]
    if len(names) != 4 or any(len(name) != 2 for name in names):
        return None
    outer, inner = (tuple(dict.fromkeys(name[place] for name in names)) for place in (0, 1))
    if len(outer) != 2 or len(inner) != 2:
        return None
    a, b, c, d = (names.index((one, other)) for one in outer for other in inner)
    return Crossing((outer[0], outer[1]), (inner[0], inner[1]), (a, b, c, d))
