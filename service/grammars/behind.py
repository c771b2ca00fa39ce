"""A grammar that holds for the answer behind a model's thoughts, and not for the thoughts. Pure."""

import re
from collections.abc import Sequence

from service.grammars.expressions import LARK_TOKEN
from service.grammars.form import Grammar
from service.grammars.marks import Spell, sequence
from service.grammars.source_text import literal

_FORM, _FORM_EXPRESSION = "form_start", "FORM_START"
_THOUGHTS, _BREAK = "form_thoughts", "FORM_BREAK"
_CLOSE, _ANY = "form_close", "FORM_ANY"
# The rule that a grammar in Lark begins with, wherever it is named, and what only looks like it.
_START = re.compile(rf"{LARK_TOKEN.pattern}|(?P<start>\bstart\b)")


def behind_thoughts(
    grammar: Grammar,
    begin: str,
    end: str,
    *,
    is_open: bool,
    without: Sequence[str] = (),
    spell: Spell = lambda text: [text],
) -> Grammar:
    """The grammar in Lark of thoughts between their markers, and then of the given form.

    Where thoughts are open already they have no first marker, and must end; else they may be left
    out, maybe `without` them by a marker of its own. Lines of a grammar in Lark stay as they are.
    """
    inner, text = _as_rule(grammar)
    close = spell(end)
    if isinstance(close[0], int):  # no text goes beyond a special token
        ending, thoughts = f"{_ANY} {sequence(close)}", rf"{_ANY}: /(.|\n)*/"
    else:
        ending, thoughts = _CLOSE, f"{_CLOSE}[lazy]: /(.|\\n)*{_in_expression(end)}/"
    opening = "" if is_open else f"{sequence(spell(begin))} "
    broken = "" if grammar.has_leading_space else f" {_BREAK}?"
    others = "".join(f" | {sequence(spell(each))}" for each in without)
    before = f"{_THOUGHTS}{broken}" if is_open else f"({_THOUGHTS}{broken}{others})?"
    rules = [f"start: {before} {inner}", f"{_THOUGHTS}: {opening}{ending}", thoughts]
    if broken:
        rules.append(rf"{_BREAK}: /[ \n]+/")
    return Grammar("lark", "\n".join([text, *rules]))


def _as_rule(grammar: Grammar) -> tuple[str, str]:
    """The name of a rule for the whole of a grammar, and the grammar in Lark that has it."""
    match grammar.kind:
        case "lark":
            return _FORM, _START.sub(lambda each: _FORM if each["start"] else each[0], grammar.text)
        case "json_schema":
            return _FORM, f"{_FORM}: %json {grammar.text}"
        case "choice":
            return _FORM, f"{_FORM}: {' | '.join(map(literal, grammar.choices))}"
    return _FORM_EXPRESSION, f"{_FORM_EXPRESSION}: /{_slashed(grammar.text)}/"


def _slashed(expression: str) -> str:
    """An expression as it stands between slashes."""
    return re.sub(r"\\.|/", lambda found: "\\/" if found[0] == "/" else found[0], expression)


def _in_expression(text: str) -> str:
    return re.escape(text).replace("/", r"\/")
