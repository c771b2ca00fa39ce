"""Write everyday sentences, in which each word stands with a known probability: a corpus for BERT.

    python -m models.data.generated.everyday FOLDER

The topics are in everyday.toml: places and what is bought and worn there, jobs, months, animals,
opposites. A document is a few sentences about one subject of a topic. Each of their words is drawn
by probabilities that only the subject decides, so that `Topic.shares` is what a network which has
learnt the corpus says of a mask.

Some templates are never filled for some subjects: the prompts of `ASKED`, and one of twenty others.
What a network says of these, it has learnt from other templates about the same subject.
"""

import functools
import random
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from models.data.corpus import SEPARATOR

NUM_DOCUMENTS, NUM_HELD_OUT_DOCUMENTS = 30_000, 1_000
MIN_SENTENCES, MAX_SENTENCES = 2, 3  # of a document
HELD_OUT_SHARE = 0.05  # of all templates with their subjects
DECAY = 0.7  # a word's probability by that of the word listed before it
COMMON_SHARE = 0.1  # of the words of a choice: drawn for any subject, not for this one
ASKED = tuple(("In {place}, they {like} to buy {buy}.", place) for place in ("Texas", "New York"))
PRONOUNS = {"he": ("he", "she"), "his": ("his", "her")}
SLOT = re.compile(r"\{(\w+)\}")
VOWEL = re.compile(r"\b([Aa]) (?=[aeiou])")
MASK = "[MASK]"


Shares = Mapping[str, float]  # the probability of each word


@dataclass(frozen=True, slots=True)
class Topic:
    """Templates, and the words that may stand in their slots."""

    name: str
    slots: Mapping[str, frozenset[str]]  # by template: those whose words the subject decides
    shares: Mapping[str, Mapping[str, Shares]]  # by subject and slot

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(self.shares)

    @property
    def templates(self) -> tuple[str, ...]:
        return tuple(self.slots)

    def is_about(self, template: str) -> bool:
        return f"{{{self.name}}}" in template


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text with one mask, and the probability of each word there; no document has its text."""

    text: str
    topic: str
    slot: str
    shares: Shares


@functools.cache
def _read() -> tuple[dict[str, tuple[str, ...]], dict[str, str], tuple[Topic, ...]]:
    """The words of free slots, the pronoun of each name, and all topics."""
    text = files("models.data.generated").joinpath("everyday.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    slots = {slot: tuple(words.split()) for slot, words in tables.pop("slots").items()}
    names = {name: he for he, some in tables.pop("names").items() for name in some.split()}
    return slots, names, tuple(_topic(name, table) for name, table in tables.items())


def _topic(name: str, table: Mapping[str, Any]) -> Topic:
    """A topic, with the probabilities that follow from the order of its words."""
    shares: dict[str, dict[str, Shares]] = {subject: {} for subject in table["subjects"]}
    for slot in next(iter(table["subjects"].values())):
        if slot == "she":
            for subject, row in table["subjects"].items():
                both = (1.0 - row["she"], row["she"])
                for pronoun, words in PRONOUNS.items():
                    shares[subject][pronoun] = dict(zip(words, both, strict=True))
            continue
        own = {subject: _decaying(row[slot].split()) for subject, row in table["subjects"].items()}
        is_fact = all(len(each) == 1 for each in own.values())
        common = 0.0 if is_fact else COMMON_SHARE
        mean = Counter[str]()
        for each in own.values():
            mean.update({word: share / len(own) for word, share in each.items()})
        for subject, each in own.items():
            shares[subject][slot] = {
                word: (1.0 - common) * each.get(word, 0.0) + common * mean[word]
                for word in (each if is_fact else mean)
            }
    decided = next(iter(shares.values())).keys()
    templates = table["templates"].strip().split("\n")
    return Topic(
        name, {each: frozenset(decided & set(SLOT.findall(each))) for each in templates}, shares
    )


def _decaying(words: Sequence[str]) -> dict[str, float]:
    weights = [DECAY**place for place in range(len(words))]
    return {word: weight / sum(weights) for word, weight in zip(words, weights, strict=True)}


def topics() -> tuple[Topic, ...]:
    return _read()[-1]


@functools.cache
def held_out() -> frozenset[tuple[str, str]]:
    """Templates with the subjects that no document fills them for."""
    pairs = [
        (template, subject)
        for topic in topics()
        for template, subject in product(topic.templates, topic.subjects)
        if topic.is_about(template) and len(topic.slots[template]) == 1
    ]
    generator = random.Random("everyday prompts")  # noqa: S311 - to reproduce
    return frozenset(generator.sample(pairs, round(HELD_OUT_SHARE * len(pairs)))) | {*ASKED}


def prompts() -> Iterator[Prompt]:
    """Each held-out template with its subject, a mask in place of the word that it decides."""
    for topic in topics():
        for template, subject in product(topic.templates, topic.subjects):
            if (template, subject) in held_out():
                (slot,) = topic.slots[template]
                writer = Writer(topic, subject, random.Random(template))  # noqa: S311 - to reproduce
                text = writer.sentence(template, {slot: MASK})
                yield Prompt(text, topic.name, slot, topic.shares[subject][slot])


class Writer:
    """Fills templates about one subject; its person stays the same."""

    def __init__(self, topic: Topic, subject: str, generator: random.Random) -> None:
        self._topic = topic
        self._generator = generator
        self._slots, names, _ = _read()
        self._name = generator.choice(list(names))
        own = topic.shares[subject].get("he")
        he = self._drawn(own) if own else names[self._name]
        self._pronouns = {slot: words[he == "she"] for slot, words in PRONOUNS.items()}
        self._subject = subject

    def document(self, num_sentences: int) -> list[str]:
        """Sentences by different templates, the first of which names the subject.

        No two of them have a word of one relation: a network would copy it from one to the other,
        and learn less about the subject.
        """
        topic = self._topic
        left = [each for each in topic.templates if (each, self._subject) not in held_out()]
        chosen: list[str] = []
        while left and len(chosen) < num_sentences:
            starts = left if chosen else [each for each in left if topic.is_about(each)]
            chosen.append(self._generator.choice(starts))
            taken = topic.slots[chosen[-1]] - PRONOUNS.keys()
            left = [each for each in left if each != chosen[-1] and not taken & topic.slots[each]]
        return [self.sentence(template) for template in chosen]

    def sentence(self, template: str, given: Mapping[str, str] | None = None) -> str:
        """The template with a word in each slot: those that are given, and others drawn."""
        fixed = {self._topic.name: self._subject, "name": self._name, **self._pronouns}
        fixed |= given or {}
        text = SLOT.sub(lambda slot: fixed.get(slot[1]) or self._word(slot[1]), template)
        text = VOWEL.sub(r"\1n ", text)
        return text[0].upper() + text[1:]

    def _word(self, slot: str) -> str:
        if slot in self._slots:
            return self._generator.choice(self._slots[slot])
        return self._drawn(self._topic.shares[self._subject][slot])

    def _drawn(self, shares: Shares) -> str:
        return self._generator.choices(list(shares), list(shares.values()))[0]


def documents(count: int, seed: int) -> Iterator[str]:
    """One sentence a line; each pair of template and subject is about as frequent as any other."""
    generator = random.Random(f"everyday {seed}")  # noqa: S311 - to reproduce
    every = topics()
    weights = [len(topic.templates) * len(topic.subjects) for topic in every]
    for _ in range(count):
        (topic,) = generator.choices(every, weights)
        writer = Writer(topic, generator.choice(topic.subjects), generator)
        yield "\n".join(writer.document(generator.randint(MIN_SENTENCES, MAX_SENTENCES)))


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m models.data.generated.everyday FOLDER")
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    parts = {"corpus": (NUM_DOCUMENTS, 0), "held_out": (NUM_HELD_OUT_DOCUMENTS, 1)}
    for name, (count, seed) in parts.items():
        text = SEPARATOR.join(documents(count, seed))
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
