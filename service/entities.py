"""From the labels of tokens to the entities of a text (pure).

Labels are IOB tags: `B-person` begins an entity of that type, `I-person` goes on with one, `O` is
outside of all. What a word is, its first token says. An `I-` that follows nothing of its type
begins an entity as well, as in conlleval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

OUTSIDE = "O"


@dataclass(frozen=True, slots=True)
class Entity:
    """Characters [start, end) of a text; `score` is the mean over its words.

    A word's is the probability that it is of the label, whether it begins an entity or goes on.
    """

    label: str
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Words:
    """A text's words as its tokenizer has them: first tokens, and [start, end) in characters."""

    first_tokens: list[int]
    spans: list[tuple[int, int]]


def words_of(
    word_ids: Sequence[int | None], offsets: Sequence[tuple[int, int]], text: str
) -> Words:
    """Put tokens together to words; a token of no word, or of no characters, is none's."""
    first_tokens: list[int] = []
    spans: list[tuple[int, int]] = []
    known = None
    for token, (word, (start, end)) in enumerate(zip(word_ids, offsets, strict=True)):
        if word is None or start == end:
            continue
        if word == known:
            spans[-1] = (spans[-1][0], end)
            continue
        known = word
        first_tokens.append(token)
        start += len(text[start:end]) - len(text[start:end].lstrip())  # the space before a word
        spans.append((start, end))
    return Words(first_tokens, spans)


def type_of(label: str) -> str:
    """Without what says where in an entity it stands; some networks have only types."""
    return label[2:] if label.startswith(("B-", "I-")) else label


def entities_of(probabilities: np.ndarray, labels: Sequence[str], words: Words) -> list[Entity]:
    """The entities of a text, in their order, from float [tokens, labels]."""
    types = [type_of(label) for label in labels]
    is_of_type = np.array([[one == other for other in types] for one in types], np.float32)
    of_words = probabilities[words.first_tokens]
    best = of_words.argmax(axis=1).tolist() if words.first_tokens else []
    scores = of_words @ is_of_type
    found: list[Entity] = []
    members: list[float] = []
    for place, (label, (start, end)) in enumerate(zip(best, words.spans, strict=True)):
        if labels[label] == OUTSIDE:
            members = []
            continue
        is_begun = bool(members) and found[-1].label == types[label]
        goes_on = is_begun and not labels[label].startswith("B-")
        members = [*(members if goes_on else []), float(scores[place, label])]
        first = found.pop().start if goes_on else start
        found.append(Entity(types[label], first, end, sum(members) / len(members)))
    return found
