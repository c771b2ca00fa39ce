"""Write the topics of Python's language reference as plain text: a corpus, and some held out.

    python -m models.data.generated.python_topics FOLDER

They come with Python itself, as what `help("topic")` shows, so nothing is downloaded and nothing
copied into the project. The same Python gives the same file; another version has other texts.
"""

import re
import sys
from pathlib import Path

from models.data.corpus import SEPARATOR, hold_out

HELD_OUT_FRACTION = 0.1
UNDERLINE = re.compile(r"([*=\-~^])\1{2,}")
LINE_START = re.compile(r"( *)((?:\* )?)")  # an entry of a list has a mark
WRAPPED_CHARACTERS = 50  # lines are wrapped at 70, and words are seldom longer than 20


def python_topics() -> tuple[str, ...]:
    """All topics in alphabetical order; several have more than one name."""
    from pydoc_data.topics import topics

    return tuple(dict.fromkeys(clean(topics[name]) for name in sorted(topics)))


def clean(topic: str) -> str:
    """One line for each paragraph, one blank line between blocks, and no lines under headings.

    So a line break says something: within sentences it would fall anywhere.
    """
    lines = [line.rstrip() for line in topic.splitlines()]
    text = "\n".join(line for line in lines if not UNDERLINE.fullmatch(line))
    blocks = re.split(r"\n{2,}", text.strip("\n"))
    return "\n\n".join(map(unwrap, blocks)) + "\n"


def unwrap(block: str) -> str:
    """Join the lines of a paragraph or of a list's entry; code stays as it is.

    A paragraph's lines begin alike (an entry's below its text) and are long, but for the last.
    """
    first, *others = block.split("\n")
    start = LINE_START.match(first)
    assert start, "it may be empty"
    margin, mark = start.groups()
    indent = len(margin + mark)
    is_prose = all(len(line) > WRAPPED_CHARACTERS for line in [first, *others][:-1])
    is_aligned = all(len(line) - len(line.lstrip()) == indent for line in others)
    if not (others and is_prose and is_aligned):
        return block
    return margin + " ".join(block.split())


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m models.data.generated.python_topics FOLDER")
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    corpus, held_out = hold_out(python_topics(), HELD_OUT_FRACTION, seed=0)
    for name, documents in (("corpus", corpus), ("held_out", held_out)):
        (folder / f"{name}.txt").write_text(SEPARATOR.join(documents), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
