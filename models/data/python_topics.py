"""Write the topics of Python's language reference as plain text: a corpus, and some held out.

    python -m models.data.python_topics FOLDER

They come with Python itself, as what `help("topic")` shows, so nothing is downloaded and nothing
copied into the project. The same Python gives the same file; another version has other texts.
"""

import re
import sys
from pathlib import Path

from models.corpus import SEPARATOR, hold_out

HELD_OUT_FRACTION = 0.1


def python_topics() -> tuple[str, ...]:
    """All topics in alphabetical order; several have more than one name."""
    from pydoc_data.topics import topics

    return tuple(dict.fromkeys(clean(topics[name]) for name in sorted(topics)))


def clean(topic: str) -> str:
    """Without blanks at line ends, and with never more than one blank line at once."""
    lines = "\n".join(line.rstrip() for line in topic.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m models.data.python_topics FOLDER")
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    corpus, held_out = hold_out(python_topics(), HELD_OUT_FRACTION, seed=0)
    for name, documents in (("corpus", corpus), ("held_out", held_out)):
        (folder / f"{name}.txt").write_text(SEPARATOR.join(documents), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
