"""`Lengths`: how long the texts of a load are, from ranges with counts; and texts of them."""

import random
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("lengths.toml")
# Common and short: about one token each in usual vocabularies.
WORDS = (  # noqa: SIM905 - a text is easier to read
    "the of and to in is you that it he was for on are as with his they at be this have from one "
    "had by word but not what all were we when your can said there use an each which she do how "
    "if will up other about out many then them these so some her would make like him into time "
    "free prize win cash later home sorry lunch"
).split(" ")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Ranges of words, both ends included, and how often each is met."""

    ranges: tuple[tuple[int, int, int], ...]  # shortest, longest, count

    def draw(self, generator: random.Random) -> int:
        counts = [count for _, _, count in self.ranges]
        shortest, longest, _ = generator.choices(self.ranges, counts)[0]
        return generator.randint(shortest, longest)

    def text(self, generator: random.Random) -> str:
        """Words at random: what a model makes of them is not measured."""
        return " ".join(generator.choices(WORDS, k=self.draw(generator)))


@cache
def known_lengths() -> dict[str, Lengths]:
    """The distributions of `lengths.toml`, by name."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: Lengths(tuple((first, last, count) for first, last, count in table["words"]))
        for name, table in tables.items()
    }
