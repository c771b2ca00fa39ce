"""A few digits for the sources that something depends on: they change when any of them does."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE, SHAPES = "loadtests/gpu", "loadtests/compare/devices/shapes.py"
EXPORTING = ("export", "models", "service/contract", SHAPES, f"{HERE}/kinds.py")
ALL = ("service", "commands", "export", "models", "loadtests")


@cache
def digest_of(sources: Sequence[str] = ALL) -> str:
    """The digest of folders and files of this checkout."""
    digest = hashlib.sha256()
    for source in sources:
        path = ROOT / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:10]
