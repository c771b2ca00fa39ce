"""Real texts to measure accuracy on: public ones out of a folder, or ours where none is named.

Public ones are no part of the project: lines of SST-2 and of the UCI SMS collection, with their
labels, and a play. Ours are the messages and paragraphs that come with the project and with Python.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

FILES = {"sst2.dev.txt": " ", "sms_spam.tsv": "\t"}  # between a label and its text
PLAY = "tinyshakespeare.txt"
HELP = f"Folder of public texts: {', '.join((*FILES, PLAY))}; without it, our own."
LONGEST_WORDS = 60  # of a part of the play


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts, and the share of the first one's words that the second has."""

    text: str
    other: str
    share: float


def real_texts(folder: Path | None = None) -> tuple[list[str], str]:
    """Texts, and where they are from: sentences, messages and passages, or our own."""
    if folder is None:
        from export.precision.samples import default_texts  # needs what exports need

        return list(default_texts()), "the project's own texts"
    absent = [name for name in (*FILES, PLAY) if not (folder / name).is_file()]
    if absent:
        raise typer.BadParameter(f"{folder} lacks {', '.join(absent)}", param_hint="--data")
    texts = []
    for name, separator in FILES.items():
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        texts += [line.split(separator, 1)[1] for line in lines if separator in line]
    words = (folder / PLAY).read_text(encoding="utf-8").split()
    starts = range(0, len(words) - LONGEST_WORDS, 20 * LONGEST_WORDS)
    texts += [" ".join(words[start : start + LONGEST_WORDS]) for start in starts]
    return texts, str(folder)


def pairs_of(texts: Sequence[str], count: int, seed: int = 0) -> list[Pair]:
    """Pairs of all degrees: of each text's words a share is kept, the others are another text's.

    Between two texts of people, shares near 0 and 1 would be all there is.
    """
    generator = random.Random(seed)
    long_enough = [text for text in texts if len(text.split()) >= 4]
    pairs = []
    for _ in range(count):
        text, stranger = generator.sample(long_enough, 2)
        words, others = text.split(), stranger.split()
        num_kept = generator.randint(0, len(words))
        kept = sorted(generator.sample(range(len(words)), num_kept))
        mixed = [words[place] for place in kept] + others[: len(words) - num_kept]
        pairs.append(Pair(text, " ".join(mixed), num_kept / len(words)))
    return pairs
