"""Docstrings can be read alone, as help(), an editor's hover and a search show them.

A docstring is a noun phrase of what is returned, or a verb, and not a sentence that goes on from a
neighbour's.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("service", "export", "models", "commands")
# Beginnings that refer to something else: a docstring before, or the name of the function.
BEGINNINGS = (
    *("The same", "What", "Of", "Those", "These", "It", "They", "That", "As", "Also"),
    *("Who", "Nobody", "Nothing", "None unless", "None where"),
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[tuple[str, str]]:
    """Each docstring of the rooms, with its place."""
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                name = getattr(node, "name", "the module")
                yield f"{path.relative_to(ROOT)}: {name}", text


def refers_to_another(text: str) -> bool:
    """Whether a docstring begins with words that need another text."""
    return any(f"{text.split('.')[0]} ".startswith(f"{words} ") for words in BEGINNINGS)


def test_a_docstring_can_be_read_alone() -> None:
    assert [place for place, text in docstrings() if refers_to_another(text)] == []


def test_what_needs_another_text_is_found() -> None:
    assert refers_to_another("The same in tokens.")
    assert refers_to_another("Of all texts.")
    assert not refers_to_another("Tokens of all texts.")
    assert not refers_to_another("Offers of a server.")
