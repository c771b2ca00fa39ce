"""How well an answer agrees with the right ones, by the measures of SQuAD (pure).

Rajpurkar et al. 2016: texts are compared without case, punctuation and articles. An answer is an
exact match or not; its F1 is that of the words it shares with a right answer. Of several right
answers the best agrees. To a question without an answer only the empty one is right (SQuAD 2.0).
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Means over questions, from 0 to 1."""

    exact_match: float
    f1: float
    num_questions: int

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, Sequence[str]]]) -> Self:
        """Of (answer, right answers) pairs; none right: the question has no answer."""
        found = [(exact_match(said, right), f1(said, right)) for said, right in pairs]
        count = max(1, len(found))
        exact, agreed = (sum(pair[i] for pair in found) / count for i in range(2))
        return cls(exact, agreed, len(found))


def exact_match(said: str, right: Sequence[str]) -> float:
    return float(any(normalized(said) == normalized(answer) for answer in right or [""]))


def f1(said: str, right: Sequence[str]) -> float:
    return max(
        _f1(normalized(said).split(), normalized(answer).split()) for answer in right or [""]
    )


def normalized(text: str) -> str:
    """In lower case, without punctuation and articles, one space between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def _f1(said: Sequence[str], right: Sequence[str]) -> float:
    if not said or not right:
        return float(said == right)
    shared = (Counter(said) & Counter(right)).total()
    return 2 * shared / (len(said) + len(right))
