"""Names the fault of a JSON schema that the compiler refused, in words with a place.

The compiler's own errors tell no place, and are of its code. Whether a schema is refused is its
decision. Pure.
"""

import json
from collections.abc import Mapping
from typing import TypeGuard

from service.grammars.schema_places import Schema, all_schemas, path_of

NUMBER, COUNT, TEXT, SCHEMA = "a number", "a whole number from 0 on", "a text", "a schema"
TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
EXPECTED = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), COUNT),
    **dict.fromkeys(("minProperties", "maxProperties"), COUNT),
    **dict.fromkeys(("pattern", "format", "$ref"), TEXT),
    **dict.fromkeys(("items", "additionalProperties"), SCHEMA),
    **dict.fromkeys(("properties", "patternProperties"), "an object of schemas"),
    **dict.fromkeys(("anyOf", "oneOf"), "a list of one schema or more"),
    **dict.fromkeys(("allOf", "prefixItems"), "a list of schemas"),
    "enum": "a list of one value or more",
    "required": "a list of texts",
    "multipleOf": "a number above 0",
    "type": f"one of {', '.join(TYPES)}, or a list of these",
}
NOTHING = "no value is between them"
# Beginnings of the compiler's errors, and what they mean.
MEANINGS = {
    "NoExtensionBias": "a part of it refers to itself without end",
    "Failed to generate regex for integer range": "a range of whole numbers cannot be written down",
    "number out of range": "it has a number beyond 1.8e308: take a text",
    "parser error: Too many items": (
        "reading it takes too many steps: a part requires itself without end, or has too many forms"
    ),
}
OUTSIDE = "a $ref leads out of the schema, and is not fetched: put what it names under $defs"
# Parts of them: the reason alone, or behind an error that names two bounds.
MEANINGS_WITHIN = {
    "is not present in a registry": OUTSIDE,
    "retriever does not fetch": OUTSIDE,
    "is equal to exclusive": NOTHING,
    "is greater than": NOTHING,
}
MAX_SHOWN = 100  # characters of a value
_BY_NAME = ("properties", "patternProperties")


def fault_of(schema: Schema) -> str | None:
    """The first keyword whose value is of another type than JSON Schema has, with its place."""
    for steps, each in all_schemas(schema):
        for keyword, value in each.items():
            if keyword in EXPECTED and not _fits(keyword, value):
                return (
                    f"at '{path_of((*steps, keyword))}': {_shown(value)}, expected "
                    f"{EXPECTED[keyword]}"
                )
    return None


def meaning_of(error: str) -> str:
    """An error of the compiler in words; others as they are."""
    for beginning, meaning in MEANINGS.items():
        if error.startswith(beginning):
            return meaning
    for part, meaning in MEANINGS_WITHIN.items():
        if part in error:
            return f"{error}: {meaning}" if meaning is NOTHING else meaning
    return error


def _fits(keyword: str, value: object) -> bool:
    expected = EXPECTED[keyword]
    if keyword == "type":
        return value in TYPES if isinstance(value, str) else _is_list_of_types(value)
    if keyword == "multipleOf":
        return _is_number(value) and value != 0
    if keyword == "enum":
        return isinstance(value, list) and bool(value)
    if keyword == "required":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if expected is NUMBER:
        return _is_number(value) or (keyword.startswith("exclusive") and value is True)
    if expected is COUNT:
        return _is_number(value) and value >= 0 and value == int(value)
    if expected is TEXT:
        return isinstance(value, str)
    if isinstance(value, list) and (keyword == "items" or expected is not SCHEMA):
        is_enough = bool(value) or keyword not in ("anyOf", "oneOf")
        return is_enough and keyword not in _BY_NAME and all(map(_is_schema, value))
    if keyword in _BY_NAME:
        return isinstance(value, Mapping) and all(map(_is_schema, value.values()))
    return expected is SCHEMA and _is_schema(value)


def _is_list_of_types(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(each in TYPES for each in value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_schema(value: object) -> bool:
    return isinstance(value, Mapping | bool)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
