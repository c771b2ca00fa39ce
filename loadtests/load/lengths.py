"""`Lengths`: how long the texts of a load are, from ranges with counts; and texts of them."""

import random
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

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


MAX_TOKENS = 512  # what BERT has positions for
WINDOW_ROWS = 32  # as many texts as wait at a server with 32 clients: those are sorted by length
# Long passages among short texts: a tenth, as a mailbox or a page of reviews has them.
PASSAGES = Lengths(((80, 320, 1),))
MIX = {"reviews": 9, "sms": 9, "passages": 2}
SEED = 11
Sizes: TypeAlias = Callable[[int], list[int]]  # a number of texts to their lengths in tokens


def mixed(count: int, generator: random.Random) -> list[Lengths]:
    """The lengths of that many texts: reviews, SMS and passages at random."""
    known = known_lengths() | {"passages": PASSAGES}
    return [known[kind] for kind in generator.choices(list(MIX), list(MIX.values()), k=count)]


def mixed_texts(count: int) -> list[str]:
    """Texts of these lengths, the same ones each time."""
    generator = random.Random(SEED)
    return [lengths.text(generator) for lengths in mixed(count, generator)]


def mixed_sizes(count: int) -> list[int]:
    """Lengths in tokens of reviews, SMS and passages, mixed: a word is about 1.3 tokens."""
    generator = random.Random(SEED)
    drawn = (lengths.draw(generator) for lengths in mixed(count, generator))
    return [min(MAX_TOKENS, round(1.3 * words) + 2) for words in drawn]


def sizes_of_texts(files: Sequence[Path], tokenizer: Path) -> Sizes:
    """Lengths of texts drawn from all files, as often from each."""
    from tokenizers import Tokenizer

    encoder = Tokenizer.from_file(str(tokenizer))
    texts = [[line for line in file.read_text().splitlines() if line.strip()] for file in files]

    def sizes(count: int) -> list[int]:
        generator = random.Random(SEED)
        chosen = [generator.choice(texts[index % len(texts)]) for index in range(count)]
        generator.shuffle(chosen)
        return [min(MAX_TOKENS, len(encoder.encode(text).ids)) for text in chosen]

    return sizes
