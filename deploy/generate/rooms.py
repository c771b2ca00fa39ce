"""The table of docs/explanation/architecture.md: every room with its purpose and its modules."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("service", "models", "export", "commands", "demos", "loadtests", "playground")


def table() -> Iterator[str]:
    """Lines of the table: folders with the first sentence of their `__init__.py`."""
    yield "| room | purpose | modules beside its rooms |"
    yield "|---|---|---|"
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("__init__.py")):
            folder = path.parent
            inner = [each for each in folder.iterdir() if (each / "__init__.py").exists()]
            modules = sorted(each.stem for each in folder.glob("*.py")) if inner else []
            shown = ", ".join(f"`{each}`" for each in modules if not each.startswith("__"))
            yield f"| `{folder.relative_to(ROOT)}/` | {_purpose(path)} | {shown} |"


def _purpose(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split()).partition(". ")[0].rstrip(".")
