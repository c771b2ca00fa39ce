"""Marks of a model's family in a grammar: those that are special tokens, as tokens. Pure."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from service.grammars.form import Grammar
from service.grammars.source_text import literal

Spell: TypeAlias = Callable[[str], Sequence[str | int]]  # texts and ids of special tokens in turn
# Rules of marks, and lazy ones that end with a mark.
_RULE = re.compile(r'^(mark\d+|\w+\[lazy\]): (\w+ )?("(?:\\.|[^"\\])*")$', re.MULTILINE)


def with_tokens(grammar: Grammar, spell: Spell) -> Grammar:
    """The grammar with special tokens in its marks."""
    if not grammar.has_marks:
        return grammar

    def changed(rule: re.Match[str]) -> str:
        parts = spell(json.loads(rule[3]))
        if not any(isinstance(part, int) for part in parts):
            return rule[0]
        name = rule[1].removesuffix("[lazy]")  # no text goes beyond a special token
        return f"{name}: {rule[2] or ''}{sequence(parts)}"

    return replace(grammar, text=_RULE.sub(changed, grammar.text))


def sequence(parts: Sequence[str | int]) -> str:
    """Texts and special tokens as they stand in Lark."""
    return " ".join(f"<[{part}]>" if isinstance(part, int) else literal(part) for part in parts)
