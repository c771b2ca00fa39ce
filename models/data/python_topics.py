"""Write the topics of Python's language reference as a plain text corpus.

    python -m models.data.python_topics OUTPUT.txt

They come with Python itself, as what `help("topic")` shows, so nothing is downloaded and nothing
copied into the project. The same Python gives the same file; another version has other texts.
"""

import re
import sys
from pathlib import Path

from models.corpus import SEPARATOR


def python_topics() -> str:
    """All topics in alphabetical order, a form feed between one and the next."""
    from pydoc_data.topics import topics

    return SEPARATOR.join(clean(topics[name]) for name in sorted(topics))


def clean(topic: str) -> str:
    """Without blanks at line ends, and with never more than one blank line at once."""
    lines = "\n".join(line.rstrip() for line in topic.splitlines())
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"


def main(arguments: list[str]) -> None:
    if len(arguments) != 1:
        sys.exit("usage: python -m models.data.python_topics OUTPUT.txt")
    output = Path(arguments[0])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(python_topics(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
