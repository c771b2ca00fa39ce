"""Write sentences in which `train` and `apple` each have two meanings: a corpus for ELMo.

    python -m models.data.generated.homographs FILE [TAGGED]

In TAGGED stand other sentences, in which each of these two words is tagged with its meaning: for a
task that is learnt on an ELMo, and cannot be learnt from words without their contexts.

Made by rule, since no text on every machine has such words often enough: a word stands where others
of its kind do, so what a language model learns of buses and trams it learns of trains, and what of
running and rowing, of training. The sentences of `ASKED` are never among them.
"""

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NUM_SENTENCES = 12_000
NUM_TAGGED = 400  # of each word
WITH_FULL_STOP = 0.5  # of all: people leave it out
# For each word: sentences with each of its two meanings.
ASKED = {
    "train": (
        ("He took a train", "We left the city by train"),
        ("He likes to train in the mornings", "They train hard for the race"),
    ),
    "apple": (
        ("She ate a sweet apple", "They cut the red apple"),
        ("Apple sells a new phone", "The phone of Apple is fast"),
    ),
}
MEANINGS = {"train": ("vehicle", "sport"), "apple": ("fruit", "firm")}  # slots of each word
SLOTS = {  # words of a kind; one that is there twice comes twice as often
    "who": "he she anna peter maria thomas",
    "many": "they we you athletes students friends",
    "vehicle": "train train bus tram ferry taxi plane ship",
    "place": "london paris rome berlin vienna madrid the_city the_airport the_harbour",
    "ride": "took missed caught boarded left",
    "late": "late early full empty crowded slow",
    "sport": "train train run swim row exercise practise dance",
    "when": "mornings evenings afternoons winter summer spring",
    "day": "monday tuesday friday sunday",
    "how": "hard slowly daily alone together outside",
    "aim": "the_race the_match the_marathon the_season the_final",
    "fruit": "apple apple pear plum peach lemon orange banana",
    "taste": "sweet sour ripe red green juicy rotten",
    "eat": "ate peeled washed cut tasted picked",
    "dish": "pie cake salad juice jam",
    "firm": "apple apple samsung nokia sony google motorola",
    "device": "phone tablet laptop computer camera watch",
    "kind": "new cheap expensive small fast popular",
    "sell": "sells builds presents designs announces repairs",
    "buy": "bought ordered wanted returned sold",
}
TEMPLATES = (
    "{who} {ride} the {vehicle} to {place}",
    "{who} {ride} the {vehicle} on {day}",
    "the {vehicle} to {place} was {late} on {day}",
    "the {vehicle} from {place} arrived {late}",
    "{many} went to {place} by {vehicle}",
    "{who} waited for a {vehicle} to {place}",
    "a {late} {vehicle} stopped in {place}",
    "{who} likes to {sport} in the {when}",
    "{who} wants to {sport} {how}",
    "{many} {sport} {how} before {aim}",
    "{many} {sport} on {day} for {aim}",
    "on {day} {many} {sport} {how}",
    "{who} has to {sport} {how} in the {when}",
    "{who} {eat} a {taste} {fruit}",
    "{who} {eat} the {fruit} and made a {dish}",
    "the {fruit} was {taste} and fell from the tree",
    "a {taste} {fruit} is good in a {dish}",
    "{many} {eat} the {taste} {fruit} on {day}",
    "{firm} {sell} a {kind} {device}",
    "{who} {buy} a {device} from {firm}",
    "the {kind} {device} of {firm} is {kind}",
    "{many} {buy} the {device} that {firm} {sell}",
    "on {day} {firm} {sell} the {kind} {device}",
)


def sentences(count: int = NUM_SENTENCES, seed: int = 0) -> list[str]:
    """Random ones, the same for the same seed; they may repeat."""
    generator = random.Random(f"homographs {seed}")  # noqa: S311 - to reproduce
    asked = {text.lower() for texts in ASKED.values() for pair in texts for text in pair}
    found: list[str] = []
    while len(found) < count:
        sentence = _filled(generator.choice(TEMPLATES), generator, {})
        if sentence not in asked:
            has_full_stop = generator.random() < WITH_FULL_STOP
            found.append(f"{sentence} ." if has_full_stop else sentence)
    return found


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A word in a sentence: `meaning` is the kind of word that it stands for."""

    sentence: str
    meaning: str
    template: str


def occurrences(word: str, count: int, seed: int = 1) -> list[Occurrence]:
    """Different sentences with the word, equally many per meaning, none of `sentences()`."""
    generator = random.Random(f"occurrences {seed}")  # noqa: S311 - to reproduce
    known = {sentence.removesuffix(" .") for sentence in sentences()}
    found: dict[str, Occurrence] = {}
    for meaning in MEANINGS[word]:
        templates = [template for template in TEMPLATES if f"{{{meaning}}}" in template]
        wanted = len(found) + count // len(MEANINGS[word])
        while len(found) < wanted:
            template = generator.choice(templates)
            sentence = _filled(template, generator, {meaning: word})
            if sentence not in known and sentence.split().count(word) == 1:
                found[sentence] = Occurrence(sentence, meaning, template)
    return list(found.values())


def _filled(template: str, generator: random.Random, given: Mapping[str, str]) -> str:
    words = {slot: generator.choice(choices.split()) for slot, choices in SLOTS.items()}
    return template.format(**{**words, **given}).replace("_", " ")


def tagged(count: int = NUM_TAGGED) -> str:
    """Sentences of each word as word<TAB>tag lines, a blank line between two sentences."""
    found = [(word, each) for word in MEANINGS for each in occurrences(word, count)]
    blocks = [
        "".join(f"{token}\t{_tag(token, word, each)}\n" for token in each.sentence.split())
        for word, each in found
    ]
    return "\n".join(blocks)


def _tag(token: str, word: str, found: Occurrence) -> str:
    return f"B-{found.meaning}" if token == word else "O"


def main(arguments: list[str]) -> None:
    if len(arguments) not in (1, 2):
        sys.exit("usage: python -m models.data.generated.homographs FILE [TAGGED]")
    Path(arguments[0]).write_text("\n".join(sentences()) + "\n", encoding="utf-8")
    for path in arguments[1:]:
        Path(path).write_text(tagged(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
