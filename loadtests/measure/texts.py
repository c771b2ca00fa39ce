"""Real texts to measure accuracy on: public ones out of a folder, or ours where none is named.

Public ones are no part of the project: lines of SST-2 and of the UCI SMS collection, with their
labels, and a play. Ours are the messages and paragraphs that come with the project and with Python.
"""

from pathlib import Path

import typer

FILES = {"sst2.dev.txt": " ", "sms_spam.tsv": "\t"}  # between a label and its text
PLAY = "tinyshakespeare.txt"
HELP = f"Folder of public texts: {', '.join((*FILES, PLAY))}; without it, our own."
LONGEST_WORDS = 60  # of a part of the play


def real_texts(folder: Path | None = None) -> list[str]:
    """Sentences, messages and passages of a folder, or our own."""
    if folder is None:
        from export.precision.samples import default_texts  # needs what exports need

        return list(default_texts())
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
    return texts
