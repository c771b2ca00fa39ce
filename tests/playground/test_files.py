"""The playground's files: how much they weigh, and what they may not contain."""

import gzip
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from demos.systems import DEMOS

PLAYGROUND = Path(str(files("playground")))
FILES = sorted(
    path for path in PLAYGROUND.rglob("*") if path.is_file() and path.suffix not in (".pyc", ".py")
)
SCREENS = [
    PLAYGROUND / "screens" / f"{name.replace('-', '_')}.js"
    for name in re.findall(r'{ id: "([^"]+)"', (PLAYGROUND / "screens/catalogue.js").read_text())
]
MOST_BYTES, MOST_ZIPPED_BYTES = 150_000, 48_000
MOST_BYTES_IN_ALL = 350_000
# What would read markup, run text as code, or reach another origin; the CSP refuses it, too.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    r"|setAttribute\(.style|\.cssText|(?<!www\.w3\.org/)https?://(?!www\.w3\.org|\$|\?:)"
)


def imports_of(path: Path) -> Iterator[Path]:
    """The modules that a module imports at once; screens are imported when they are opened."""
    for name in re.findall(r'\bfrom "([.][^"]+)"', path.read_text()):
        yield (path.parent / name).resolve()


def loaded_for(screen: Path) -> set[Path]:
    """All files that a browser loads for a screen, with the shell."""
    waiting = [PLAYGROUND / name for name in ("app.js", "index.html", "style.css", "icon.svg")]
    waiting.append(screen)
    loaded: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in loaded:
            loaded.add(path)
            waiting += imports_of(path) if path.suffix == ".js" else ()
    return loaded


@pytest.mark.parametrize(
    "screen", [each for each in SCREENS if each.exists()], ids=lambda path: path.stem
)
def test_what_a_screen_loads_is_small(screen: Path) -> None:
    contents = [path.read_bytes() for path in loaded_for(screen)]
    assert sum(map(len, contents)) <= MOST_BYTES
    assert sum(len(gzip.compress(content)) for content in contents) <= MOST_ZIPPED_BYTES


def test_all_files_together_have_a_bound() -> None:
    sizes = {str(path.relative_to(PLAYGROUND)): path.stat().st_size for path in FILES}
    assert sum(sizes.values()) <= MOST_BYTES_IN_ALL, sizes


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_reads_markup_or_names_another_origin(path: Path) -> None:
    found = FORBIDDEN.findall(path.read_text(encoding="utf-8"))
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_names_are_nouns_in_snake_case(path: Path) -> None:
    assert re.fullmatch(r"[a-z0-9_]+\.(js|css|html|svg)", path.name)


def test_every_command_that_fills_a_screen_is_a_demo() -> None:
    catalogue = (PLAYGROUND / "screens/catalogue.js").read_text(encoding="utf-8")
    assert set(re.findall(r'demo: "([^"]+)"', catalogue)) <= set(DEMOS)
