"""The playground's files: how much they weigh, and what they may not contain."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

PLAYGROUND = Path(str(files("playground")))
FILES = sorted(
    path for path in PLAYGROUND.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".py")
)
MOST_BYTES = 150_000
# What would read markup, run text as code, or reach another origin; the CSP refuses it, too.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    r"|setAttribute\(.style|\.cssText|(?<!www\.w3\.org/)https?://(?!www\.w3\.org|\$|\?:)"
)


def test_all_files_together_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FILES}
    assert sum(sizes.values()) <= MOST_BYTES, sizes


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_reads_markup_or_names_another_origin(path: Path) -> None:
    found = FORBIDDEN.findall(path.read_text(encoding="utf-8"))
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_names_are_nouns_in_snake_case(path: Path) -> None:
    assert re.fullmatch(r"[a-z0-9_]+\.(js|css|html|svg)", path.name)
