"""Grammars as requests state them: four kinds, vLLM's spelling, and what is refused unread."""

import json
from typing import Any

import pytest

from service.errors import InvalidArgument
from service.grammars.form import (
    MAX_CHARACTERS,
    Grammar,
    schemas_of,
    take_grammar,
    with_schemas,
)
from service.grammars.schema_checks import MAX_NESTING


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ({"json_schema": {"b": 1, "a": 2}}, "json_schema", '{"b": 1, "a": 2}'),
        ({"json_schema": ' {"type":"null"}'}, "json_schema", '{"type": "null"}'),
        ({"regex": "a+"}, "regex", "a+"),
        ({"choice": ["é", "b"]}, "choice", '["é", "b"]'),
        ({"lark": 'start: "a"'}, "lark", 'start: "a"'),
        ({"structured_outputs": {"regex": "a", "json": None}}, "regex", "a"),
        ({"structured_outputs": '{"choice": ["a"]}'}, "choice", '["a"]'),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, "lark", 'start: "a"'),
        ({"structured_outputs": {"json_object": True}}, "json_schema", '{"type": "object"}'),
    ],
)
def test_a_grammar_is_taken_from_names_and_values(
    values: dict[str, Any], kind: str, text: str
) -> None:
    left = values | {"temperature": 0.0}
    assert take_grammar(left) == Grammar(kind, text)
    assert left == {"temperature": 0.0}


def test_without_its_fields_there_is_no_grammar() -> None:
    assert take_grammar({"n": 2, "regex": None}) is None


@pytest.mark.parametrize(
    ("values", "field", "text"),
    [
        ({"regex": "a", "lark": "b"}, "lark", "lark is set beside regex, expected one of"),
        ({"regex": ""}, "regex", "regex is empty or no text"),
        ({"regex": 5}, "regex", "regex is empty or no text"),
        ({"regex": "a" * 65_537}, "regex", f"65537 characters, expected at most {MAX_CHARACTERS}"),
        ({"regex": "\ud800"}, "regex", "a half of a surrogate pair"),
        ({"choice": "yes"}, "choice", "is no list"),
        ({"choice": []}, "choice", "has 0 texts, expected 1 to 1024"),
        ({"choice": ["a", ""]}, "choice", "has an empty text"),
        ({"json_schema": "{"}, "json_schema", "json_schema is not JSON"),
        ({"json_schema": True}, "json_schema", "is no object"),
        ({"json_schema": "[" * 60_000}, "json_schema", "json_schema is not JSON"),
        ({"json_schema": nested(MAX_NESTING)}, "json_schema", f"deeper than {MAX_NESTING}"),
        ({"json_schema": {"a": {"x-guidance": {}}}}, "json_schema", "has x-guidance"),
        ({"json_schema": {"multipleOf": 1009}}, "json_schema", "is 1009, expected at most 1000"),
        (
            {"json_schema": {"allOf": [{"multipleOf": 97}, {"multipleOf": 0.89}]}},
            "json_schema",
            "is 863300, expected at most 1000",
        ),
        ({"json_schema": {"minProperties": 2}}, "json_schema", "minProperties 2 beside 0 required"),
        (
            {"json_schema": {"not": [{"required": ["a", "a"], "minProperties": 3}]}},
            "json_schema",
            "minProperties 3 beside 1 required, expected at most 2",
        ),
        ({"json_schema": {"multipleOf": 1e400}}, "json_schema", "a number beyond those of JSON"),
        ({"structured_outputs": []}, "structured_outputs", "is no object"),
        ({"structured_outputs": {}}, "structured_outputs", "has 0 fields"),
        ({"structured_outputs": {"tag": 1}}, "structured_outputs", "has tag, expected one of"),
        ({"lark": "start: %json 5"}, "lark", "has %json, expected an object behind it"),
        ({"lark": "start: %json {"}, "lark", "has %json, expected JSON behind it"),
        (
            {"lark": 'start: %json {"multiple\\u004ff": 9999}'},
            "json_schema",
            "is 9999, expected at most 1000",
        ),
    ],
)
def test_what_no_grammar_is_names_its_field(values: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        take_grammar(values)
    assert caught.value.field == field
    assert text in str(caught.value)


def test_multiples_with_few_remainders_are_taken() -> None:
    schema = {"anyOf": [{"multipleOf": 0.01}, {"multipleOf": 0.05}, {"multipleOf": 10}]}
    assert Grammar.of("json_schema", schema).text == json.dumps(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"exclusiveMinimum": 3, "maximum": 3.5},
        {"exclusiveMinimum": 0.0, "minimum": -1, "exclusiveMaximum": 0.5},
        {"minimum": -3.5, "exclusiveMaximum": -3},
        {"minimum": 0, "exclusiveMinimum": True, "maximum": 0.5},
        {"exclusiveMinimum": 3, "allOf": [{"maximum": 9}, {"anyOf": [{"maximum": 3.5}]}]},
    ],
)
def test_a_whole_number_between_which_and_the_next_is_nothing_else_is_no_exclusive_bound(
    schema: dict[str, Any],
) -> None:
    with pytest.raises(InvalidArgument, match="take a bound with a fraction"):
        Grammar.of("json_schema", {"items": {"type": "number", **schema}})


@pytest.mark.parametrize(
    "schema",
    [
        {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"exclusiveMinimum": 0.25, "maximum": 0.5},
        {"exclusiveMinimum": 3, "minimum": 3.25, "maximum": 3.5},
        {"minimum": 3, "maximum": 3.5},
        {"exclusiveMaximum": 3, "minimum": 2.5},
        {"exclusiveMinimum": -3, "maximum": -2.5},
        {"exclusiveMinimum": 10**400, "maximum": "x"},
    ],
)
def test_other_bounds_are_taken(schema: dict[str, Any]) -> None:
    assert Grammar.of("json_schema", schema).text == json.dumps(schema)


def test_properties_that_are_sure_to_differ_may_be_demanded() -> None:
    schema = {"properties": {"minProperties": {"minProperties": 1}}}
    beside = {"required": ["a", "b"], "minProperties": 3, "anyOf": [schema]}
    assert Grammar.of("json_schema", beside).text == json.dumps(beside)


def test_schemas_of_a_lark_grammar_are_changed_in_place() -> None:
    lark = 'start: a "%" b\na: %json {"type": "null"}\nb: %json\n{"enum": [1]} "end"'
    changed = with_schemas(lark, lambda schema: {**schema, "x": 1})
    expected = 'start: a "%" b\na: %json {"type": "null", "x": 1}\nb: %json {"enum": [1], "x": 1}'
    assert changed == f'{expected} "end"'


def test_schemas_of_a_grammar_come_with_their_lines() -> None:
    lark = 'start: a b\na: %json {"type": "null"}\n\nb: %json\n{"enum": [1]} | %json {}'
    found = schemas_of(Grammar("lark", lark))
    assert found == [(2, {"type": "null"}), (4, {"enum": [1]}), (4, {})]
    assert schemas_of(Grammar.of("json_schema", {"type": "null"})) == [(1, {"type": "null"})]
    assert schemas_of(Grammar.of("regex", "a")) == []


def test_a_schema_in_lark_may_have_the_word_that_announces_one() -> None:
    schema = {"type": "object", "description": "a %json text", "properties": {"%json": {}}}
    lark = f'start: %json {json.dumps(schema)} "end"'
    assert with_schemas(lark, lambda inner: inner) == lark
    assert Grammar.of("lark", lark).text == lark
    with pytest.raises(InvalidArgument, match="has x-guidance"):
        Grammar.of("lark", f'{lark} | %json {{"x-guidance": {{}}}}')
