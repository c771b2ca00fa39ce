"""JSON Schemas by hypothesis: most keywords, odd names, nested and joined, many impossible."""

import json
from typing import Any

import jsonschema
from hypothesis import strategies as some

from service.grammars.form import Grammar
from tests.fakes.grammars import TREE, Case

NAMES = some.sampled_from(["a", "ab", "name", "größe", 'q"', "x y", ""])
TEXTS = some.sampled_from(["", "a", "ab", "\u4e2d", 'q"', "x\\y"])
SINGLE = some.none() | some.booleans() | some.integers(-60, 60) | TEXTS
VALUES = some.recursive(
    SINGLE,
    lambda inner: some.lists(inner, max_size=2) | some.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
FORMATS = ["date", "date-time", "duration", "email", "ipv4", "ipv6", "uri", "uuid", "password"]
PATTERNS = ["^[a-c]{2,4}$", "ab", "^(foo|ba+r)?$", "^\\d{3}$", '^[^"\\\\]{1,5}$', "b$", "\\s"]
NAME_PATTERNS = some.sampled_from(["^a", "b", "^x.*$", "^[a-z]{1,3}$"])
SIZES = some.integers(0, 3)
Schemas = some.SearchStrategy[Any]


def typed(name: str, **keywords: Schemas) -> Schemas:
    """A type with any of its keywords."""
    return some.fixed_dictionaries({"type": some.just(name)}, optional=keywords)


def numbers(name: str, values: Schemas, steps: list[float]) -> Schemas:
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
    return typed(name, multipleOf=some.sampled_from(steps), **dict.fromkeys(bounds, values))


LEAVES = some.one_of(
    typed(
        "string",
        minLength=some.integers(0, 4),
        maxLength=some.integers(0, 6),
        pattern=some.sampled_from(PATTERNS),
        format=some.sampled_from(FORMATS),
    ),
    numbers("integer", some.integers(-60, 60), [2, 3, 5]),
    numbers("number", some.floats(-60, 60, width=16), [0.5, 2, 3]),
    some.sampled_from([{"type": "boolean"}, {}, {"type": ["string", "null"]}, True, False]),
    some.just({"$ref": "#/$defs/tree"}),
    some.lists(VALUES, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    VALUES.map(lambda value: {"const": value}),
)


def nested(inner: Schemas) -> Schemas:
    few = some.lists(inner, min_size=1, max_size=3)
    objects = typed(
        "object",
        properties=some.dictionaries(NAMES, inner, max_size=3),
        required=some.lists(NAMES, max_size=3, unique=True),
        additionalProperties=inner,
        patternProperties=some.dictionaries(NAME_PATTERNS, inner, max_size=2),
        minProperties=SIZES,
        maxProperties=SIZES,
    )
    arrays = typed(
        "array",
        items=inner,
        prefixItems=some.lists(inner, min_size=1, max_size=2),
        minItems=SIZES,
        maxItems=SIZES,
    )
    joined = some.sampled_from(["anyOf", "allOf", "oneOf"]).flatmap(
        lambda keyword: (
            some.fixed_dictionaries({keyword: few})
            | some.builds(lambda one, parts: one | {keyword: parts}, objects, few)
        )
    )
    return objects | objects | arrays | joined


SCHEMAS: Schemas = some.recursive(LEAVES, nested, max_leaves=8).filter(
    lambda schema: isinstance(schema, dict)
)


def case_of(schema: dict[str, Any]) -> Case:
    """The grammar of a schema, and its check; `InvalidArgument` for one that is refused unread."""
    whole = {**schema, "$defs": {"tree": TREE}}
    checker = jsonschema.Draft202012Validator(whole, format_checker=jsonschema.FormatChecker())
    return Case(
        Grammar.of("json_schema", whole), lambda text: bool(checker.is_valid(json.loads(text)))
    )
