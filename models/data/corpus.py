"""Read plain text to learn a language from, part it into documents and hold some of it out.

Knows nothing about tokens. A file is one document, unless form feeds part it into several. All text
is held in memory.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.errors import DatasetError

SEPARATOR = "\f"  # where plain text has a new page


@dataclass(frozen=True, slots=True)
class TextFile:
    """The documents of a file, in its order, none of them blank; `name` is without folders."""

    name: str
    num_bytes: int
    sha256: str
    documents: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        sizes = {"bytes": self.num_bytes, "documents": len(self.documents)}
        return {"file": self.name, **sizes, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class Corpus:
    """The texts for training and for measuring; no text is in both, unless it was given twice."""

    files: tuple[TextFile, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]
    validation_file: TextFile | None = None  # None: held out from the files


def read_corpus(
    paths: Sequence[Path], validation: Path | None, validation_fraction: float, seed: int
) -> Corpus:
    """Read all files; without one for validation, that is a fraction of the others' text."""
    files = tuple(read_text_file(path) for path in paths)
    documents = [document for file in files for document in file.documents]
    if validation is None:
        train, held_out = hold_out(documents, validation_fraction, seed)
        return Corpus(files, train, held_out)
    validation_file = read_text_file(validation)
    return Corpus(files, tuple(documents), validation_file.documents, validation_file)


def read_text_file(path: Path) -> TextFile:
    """UTF-8, with any kind of line ends."""
    try:
        content = path.read_bytes()
        text = content.decode()
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path}: byte {error.start} is no UTF-8 text: {error.reason}"
        ) from error
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    documents = tuple(part for part in text.split(SEPARATOR) if part.strip())
    if not documents:
        raise DatasetError(f"{path} holds no text")
    return TextFile(path.name, len(content), hashlib.sha256(content).hexdigest(), documents)


def hold_out(
    documents: Sequence[str], fraction: float, seed: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Shuffle the documents, then part them where `1 - fraction` of all characters are before.

    So a document may be cut in two, and a corpus of a single one can be held out from too.
    """
    shuffled = list(documents)
    random.Random(f"hold out {seed}").shuffle(shuffled)  # noqa: S311 - to reproduce
    remaining = round(sum(map(len, shuffled)) * (1.0 - fraction))
    train, held_out = [], []
    for document in shuffled:
        train.append(document[:remaining])
        held_out.append(document[remaining:])
        remaining = max(0, remaining - len(document))
    return tuple(filter(None, train)), tuple(filter(None, held_out))
