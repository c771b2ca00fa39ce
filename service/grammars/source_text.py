"""The text of a grammar as the llguidance library reads it, and what is tried on it first.

What a grammar cannot hold it refuses: options by which the library would ignore keywords or take
`oneOf` for `anyOf` are off. JSON has no spaces between its tokens but one behind a comma and a
colon, as otherwise an output may be spaces without end. Its strings have no escapes by number but
where a literal has characters that JSON writes in no other way: a property whose name is written in
another way would not be held to its schema.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.errors import invalid_field
from service.grammars.expressions import with_ascii_classes, with_ascii_terminals
from service.grammars.form import Grammar, schemas_of, with_schemas
from service.grammars.schema_checks import OPTIONS
from service.grammars.schema_forms import kept_form
from service.grammars.schema_literals import (
    Literals,
    has_controls_in_names,
    has_numbered_controls,
    literals,
)

JSON_OPTIONS: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": 'nrbtf\\"',
    "lenient": False,
    "coerce_one_of": False,
}


def grammar_text(grammar: Grammar) -> str:
    """The grammar as the library reads it."""
    import llguidance

    library = llguidance.LLMatcher
    if grammar.kind == "json_schema":
        schema = json.loads(grammar.text)
        return _json(schema, _options(schema))
    if grammar.kind == "regex":
        return str(library.grammar_from_regex(with_ascii_classes(grammar.text)))
    if grammar.kind == "choice":
        texts = " | ".join(map(literal, grammar.choices))
        return str(library.grammar_from_lark(f"start: {texts}"))
    return str(library.grammar_from_lark(with_ascii_terminals(with_schemas(grammar.text, _schema))))


@dataclass(frozen=True, slots=True)
class Walk:
    """Texts that are walked through a part of a grammar, and what a failure of each is at."""

    grammar: str  # as the library reads it
    singles: tuple[str, ...]  # by place: the place's grammar alone
    places: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]  # what is taken, and what is not
    opening: str
    between: str
    closing: str  # empty: the output must end
    paths: tuple[str, ...]  # by place
    beyond: tuple[str, ...] = ()  # by place: a number that would end the library
    line: int | None = None  # of a grammar in Lark


def walks_of(grammar: Grammar) -> list[Walk]:
    """Texts that a grammar must allow exactly, as walks. Raises `InvalidArgument`."""
    if grammar.kind == "choice":
        texts = (tuple(grammar.choices), ())
        return [Walk(grammar_text(grammar), (), (texts,), "", "", "", ("choice",))]
    walks = []
    for line, schema in schemas_of(grammar):
        if found := literals(schema):
            walks.append(_walk_of(schema, found, line if grammar.kind == "lark" else None))
    return walks


def _walk_of(schema: dict[str, Any], found: Sequence[Literals], line: int | None) -> Walk:
    parts = [each.schema for each in found]
    items: dict[str, Any] = {"prefixItems": parts, "items": False, "minItems": len(parts)}
    options = _options(schema)
    return Walk(
        _json({"type": "array", **items}, options),
        tuple(_json(dict(part), options) for part in parts),
        tuple((each.accepted, each.refused) for each in found),
        "[",
        ", ",
        "]",
        tuple(each.path for each in found),
        tuple(each.beyond for each in found),
        line,
    )


def _json(schema: dict[str, Any], options: dict[str, Any]) -> str:
    import llguidance

    text = json.dumps(kept_form(schema) | {OPTIONS: options}, ensure_ascii=False)
    return str(llguidance.LLMatcher.grammar_from_json_schema(text))


def _options(schema: dict[str, Any]) -> dict[str, Any]:
    """The options for a schema. Raises `InvalidArgument`."""
    if not has_numbered_controls(schema):
        return JSON_OPTIONS
    if has_controls_in_names(schema):
        raise invalid_field(
            "json_schema",
            "has control characters in a literal and in a property's name, expected them in one "
            "of both: the name could be written in two ways",
        )
    return JSON_OPTIONS | {"json_allowed_escapes": f"{JSON_OPTIONS['json_allowed_escapes']}u"}


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema in the form that is kept to, with the options of the library."""
    return kept_form(schema) | {OPTIONS: _options(schema)}


def literal(text: str) -> str:
    """A text in Lark, which has no U+007F as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
