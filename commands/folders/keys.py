"""The key of a kept export: what it was made of, how, and by which version. Imports no PyTorch.

Of a hub id the commit stands for the contents. Of a folder the small files count whole, and of the
files of weights name, size and time of change: to read 16 GB takes longer than to load the export.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from models.errors import CheckpointError
from service import __version__

EXPORT_FORM = 2  # raised with every change of the graphs or manifests that an export writes
SMALL = 1_000_000  # bytes of a file whose contents count
MAX_FILES = 10_000


def key_of(contents: object, options: Mapping[str, Any]) -> str:
    """Hexadecimal digits; equal ones mean that the export would be the same."""
    made_by = [EXPORT_FORM, __version__]
    text = json.dumps([contents, dict(options), made_by], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def contents_of(folder: Path) -> list[Any]:
    """The files of a folder, or one file, each with what tells it from another."""
    files: list[Any] = []
    root = folder.parent if folder.is_file() else folder
    for path in [folder] if folder.is_file() else sorted(folder.rglob("*")):
        inner = path.relative_to(root)
        if any(part.startswith(".") for part in inner.parts) or not path.is_file():
            continue
        if len(files) == MAX_FILES:
            raise CheckpointError(f"{folder} has more than {MAX_FILES} files: it is no model's")
        status = path.stat()
        if status.st_size <= SMALL:
            stamp: object = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            stamp = status.st_mtime_ns
        files.append([inner.as_posix(), status.st_size, stamp])
    return files
