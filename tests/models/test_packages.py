"""What is installed: every package of the checkout, with the files that it reads."""

import tomllib
from fnmatch import fnmatch
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOR_READERS = "*.md"  # no module reads these
FILES = [
    path.relative_to(ROOT)
    for folder in ("service", "commands", "export", "demos", "models", "playground")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and path.parent.name != "__pycache__"
]


def package_of(path: Path) -> str:
    return ".".join(path.parent.parts)


def test_every_package_is_installed() -> None:
    packages = {package_of(path) for path in FILES if path.suffix == ".py"}
    found = find_packages(str(ROOT), include=SETUPTOOLS["packages"]["find"]["include"])
    assert packages == set(found)


def test_every_file_beside_modules_is_installed_with_its_package() -> None:
    patterns = SETUPTOOLS["package-data"]
    for path in FILES:
        if path.suffix != ".py" and not fnmatch(path.name, FOR_READERS):
            folder = next(each for each in path.parents if (ROOT / each / "__init__.py").exists())
            listed = patterns.get(".".join(folder.parts), [])
            name = path.relative_to(folder).as_posix()
            assert any(fnmatch(name, pattern) for pattern in listed), path
