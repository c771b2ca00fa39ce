"""The grammar of an output that calls functions, in the form of a model's own calls.

Marks may be special tokens, so each is a rule of its own, in whose place `grammars/marks.py` puts
tokens. Where calls are free to be made, text is any but one that begins as JSON of a call does;
what follows a mark, or begins so, is a call. In a form that writes arguments as texts, a text of a
schema is free, and ends at the mark behind it.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from service.errors import InvalidArgument
from service.families.call_forms import CALL_FORMS, CallForm, Keys
from service.grammars.form import Grammar
from service.grammars.source_text import literal
from service.http.openai.literal_grammars import NOTHING, LiteralRules, Rules
from service.http.openai.marked_scan import kinds_of
from service.http.status import invalid

# Spaces, then what is no brace, and no bracket before one. `HEAD` ends at its first marker.
_ANY_TEXT = r"TEXT: /(.|\n)*/"
_NO_LIST = r"TEXT: /[ \t\n]*([^ \t\n\[](.|\n)*)?/"
_TEXT = r"TEXT: /[ \t\n]*(([^ \t\n{\[]|\[[^ \t\n{\[])(.|\n)*)?\[?/"


# What the library says of a schema in such a grammar: line, column and reason.
_SCHEMA_ERROR = re.compile(
    r"cannot be kept to: at (\d+)\(\d+\): failed to compile JSON schema: (.*)"
)


@dataclass(frozen=True, slots=True)
class Callable:
    """A function that must be called, or may be beside others."""

    field: str  # of the body, that declares it
    name: str
    parameters: dict[str, Any] | None


def grammar_of_calls(
    form_name: str, functions: Sequence[Callable], *, is_single: bool, may_be_text: bool = False
) -> Grammar:
    """The grammar of one call, or of one or more, of any of the functions. Raises `HttpError`.

    With `may_be_text` the output is text, in which there may be calls.
    """
    form, rules = CALL_FORMS[form_name], Rules()
    start = _start_of(form, is_single=is_single) if may_be_text else ["start: calls"]
    one = " | ".join(f"call{place}" for place in range(len(functions)))
    marked = rules.sequence(form.before, "call", form.behind)
    more = "" if is_single else f" ({rules.sequence(form.between, marked)})*"
    rules.lines += [*start, f"calls: {rules.sequence(form.opening, marked + more, form.closing)}"]
    if may_be_text and not form.is_bare:
        begun, rule, done = form.before, "call", form.behind
        if form.opening:
            begun, rule, done = form.opening, marked + more, form.closing
        block = rules.sequence(begun.removeprefix(form.begin), rule, done)
        rules.lines.append(f"block: head {block}")
    rules.lines.append(f"call: {one}")
    for place, function in enumerate(functions):
        if form.is_marked:
            _add_marked(rules, form, place, function)
            continue
        name = json.dumps(function.name, ensure_ascii=False)
        head = f'{{"{form.name_key}": {name}, "{form.arguments_key}": '
        rules.lines.append(f"call{place}: {literal(head)} arguments{place} {literal('}')}")
        rules.lines.append(f"arguments{place}: %json {_schema(function)}")
    try:
        return replace(Grammar.of("lark", "\n".join(rules.lines)), has_marks=True)
    except InvalidArgument as error:
        raise invalid(f"tools is too large: {error}", "tools") from error


def _add_marked(rules: Rules, form: CallForm, place: int, function: Callable) -> None:
    """The rules of one function whose name and arguments stand between marks."""
    name = literal(function.name)
    index = f" /{form.index}/" if form.index else ""
    named = f" {rules.mark(form.named)}" if form.named else ""
    rules.lines.append(f"call{place}: {name}{index}{named} arguments{place}")
    if form.literals is not None:
        made = LiteralRules(rules, form.literals, place, json.loads(_schema(function)))
        arguments = made.arguments(are_any=function.parameters is None)
        rules.lines.append(f"arguments{place}: {arguments} {literal(form.literals.close)}")
        return
    if form.keys is None:
        rules.lines.append(f"arguments{place}: %json {_schema(function)}")
        return
    schema = json.loads(_schema(function))
    known = schema.get("properties") or {}
    if not known and function.parameters is None:
        rules.lines += [f"arguments{place}: any{place}*", *_any_value(rules, form.keys, place)]
        return
    parts, required = [], schema.get("required") or ()
    for number, (key, value) in enumerate(known.items()):
        rule = f"value{place}_{number}"
        rules.lines += _value(rules, form.keys, rule, key, value, schema)
        parts.append(rule if key in required else f"{rule}?")
    rules.lines.append(f"arguments{place}: {' '.join(parts) or NOTHING}")


def _any_value(rules: Rules, keys: Keys, place: int) -> list[str]:
    head = f"any{place}: {rules.mark(keys.open)} KEY{place} {rules.mark(keys.close)}"
    return [
        f"{head} text{place}",
        f"KEY{place}: /[A-Za-z_][A-Za-z0-9_]{{0,63}}/",
        f"text{place}[lazy]: ANY{place} {literal(keys.value_close)}",
        f"ANY{place}: /(.|\\n)*/",
    ]


def _value(
    rules: Rules, keys: Keys, rule: str, key: str, schema: object, root: dict[str, Any]
) -> list[str]:
    """The rules of one argument: a text up to the mark behind it, or JSON."""
    known = schema if isinstance(schema, dict) else {}
    kinds = kinds_of(known)
    is_text = "string" in kinds or not (kinds or "$ref" in known)
    close = keys.close if is_text else keys.close_of_others or keys.close
    head = f"{rule}: {rules.mark(keys.open)} {literal(key)} {rules.mark(close)}"
    if (choices := known.get("enum")) and kinds == {"string"}:
        texts = " | ".join(literal(each) for each in choices)
        return [f"{head} ({texts}) {rules.mark(keys.value_close)}"]
    if is_text:
        text = rule.upper()
        return [
            f"{head} {rule}_text",
            f"{rule}_text[lazy]: {text} {literal(keys.value_close)}",
            f"{text}: /(.|\\n)*/",
        ]
    defined = {name: root[name] for name in ("$defs", "definitions") if name in root}
    return [
        f"{head} {rule}_json {rules.mark(keys.value_close)}",
        f"{rule}_json: %json {json.dumps({**known, **defined}, ensure_ascii=False)}",
    ]


def at_function(
    error: InvalidArgument, grammar: str, functions: Sequence[Callable]
) -> InvalidArgument:
    """The refusal of such a grammar; of a schema in it, at the field that has the schema."""
    at = _SCHEMA_ERROR.search(str(error)) if error.field == "lark" else None
    line = grammar.split("\n")[int(at[1]) - 1] if at else ""
    rule = re.match(r"(?:arguments|value)(\d+)(?:_\d+_json)?: ", line)
    if at is None or rule is None:
        return error
    field = f"{functions[int(rule[1])].field}.parameters"
    return InvalidArgument(f"{field} cannot be kept to: {at[2]}", field)


def _start_of(form: CallForm, *, is_single: bool) -> list[str]:
    """The rules of text with calls in it: behind a mark, or bare at its beginning."""
    head = f"head[lazy]: TEXT {literal(form.begin)}"
    if form.is_bare:
        text = _NO_LIST if form.is_marked else _TEXT
        return ["start: TEXT | calls | head calls", head, text]
    start = "start: TEXT | block" if is_single or form.opening else "start: block* TEXT"
    bare = "" if form.is_marked or form.opening else " | call"
    return [f"{start}{bare}", head, _ANY_TEXT if form.is_marked else _TEXT]


def _schema(function: Callable) -> str:
    """The schema of a function's arguments, which are an object."""
    try:
        return Grammar.of("json_schema", function.parameters or {"type": "object"}).text
    except InvalidArgument as error:
        field = f"{function.field}.parameters"
        raise error.named({"json_schema": field}, {}) from error
