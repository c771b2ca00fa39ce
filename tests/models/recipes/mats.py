"""60 sentences of one form, in which animal, verb and number are left to guess."""

from models.data.corpus import Corpus, TextFile, hold_out


def mats() -> Corpus:
    documents = tuple(
        f"the {animal} {verb} on mat {number}.\n"
        for animal in ("cat", "dog", "hen")
        for verb in ("sat", "ran", "hid", "ate")
        for number in range(5)
    )
    train, validation = hold_out(documents, 0.1, seed=0)
    return Corpus((TextFile("mats.txt", 1_000, "abc", documents),), train, validation)
