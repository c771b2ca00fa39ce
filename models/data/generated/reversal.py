"""The task of reversing a sequence of symbols, generated.

Nothing can be guessed from the order that symbols usually have: all of the source must be kept, and
its first symbol longest. So it shows what one state of fixed size holds, and what attention adds.
"""

import random
from typing import Protocol

from models.data.pairs import Pair, PairSplits
from models.errors import SettingError

MAX_SHARE = 0.5  # of all sequences there are: beyond it, finding new ones by chance gets slow


class Amounts(Protocol):
    """The amounts to generate."""

    @property
    def seed(self) -> int: ...

    @property
    def samples(self) -> int: ...

    @property
    def test_samples(self) -> int: ...

    @property
    def length(self) -> int: ...

    @property
    def symbols(self) -> int: ...


def generate(settings: Amounts) -> PairSplits:
    """Sequences of symbols s0, s1, ..., none of them twice, and their reversals."""
    length, symbols = settings.length, settings.symbols
    samples, test_samples = settings.samples, settings.test_samples
    num_wanted = samples + test_samples
    most = int(MAX_SHARE * symbols**length) - test_samples
    if samples > most:
        raise SettingError(
            "samples", samples, f"at most {most}, with {length} of {symbols} symbols in a sequence"
        )
    generator = random.Random(f"reversal {settings.seed}")  # noqa: S311 - to reproduce
    found: dict[tuple[int, ...], None] = {}  # in the order in which they were found
    while len(found) < num_wanted:
        found[tuple(generator.randrange(symbols) for _ in range(length))] = None
    pairs = [Pair(_text(sequence), _text(sequence[::-1])) for sequence in found]
    name = f"reversal of {length} of {symbols} symbols"
    return PairSplits(name, tuple(pairs[:samples]), tuple(pairs[samples:]))


def _text(sequence: tuple[int, ...]) -> str:
    return " ".join(f"s{symbol}" for symbol in sequence)
