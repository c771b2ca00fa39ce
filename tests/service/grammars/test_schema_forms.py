"""The form of a schema that the compiler keeps to: formats, alternatives, and objects that end."""

from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from service.grammars.schema_forms import kept_form, unenforced_formats
from tests.fakes.grammars import TREE
from tests.fakes.schemas import SCHEMAS


def kind(name: object, **more: Any) -> dict[str, Any]:
    """A branch that a discriminator tells, as generators of code write it."""
    properties = {"kind": {"const": name, "default": name}, **more}
    return {"type": "object", "properties": properties}


def test_formats_that_are_not_known_are_annotations_and_named() -> None:
    names = ["password", "path", "binary", "byte", "uri-reference", "regex", "iri", "int64"]
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "format": name} for name in names},
        "items": [{"format": "password"}, {"format": "email"}],
        "enum": [{"format": "of a value"}],
    }
    assert unenforced_formats(schema) == names
    form = kept_form(schema)
    assert all("format" not in each for each in form["properties"].values())
    assert form["items"][1] == {"format": "email"}
    assert form["enum"] == schema["enum"]


def test_a_date_with_a_pattern_keeps_to_both() -> None:
    form = kept_form({"type": "string", "format": "date", "pattern": r"^\d"})
    assert form["pattern"] == "^[0-9]"
    assert "-02-29" in form["allOf"][0]["pattern"]


@pytest.mark.parametrize("is_referenced", [False, True])
@pytest.mark.parametrize("names", [("a", "b"), (1, 2), (True, None)])
def test_a_discriminator_with_a_default_is_required(
    names: tuple[object, object], is_referenced: bool
) -> None:
    branches: list[dict[str, Any]] = [kind(names[0], x={}), kind(names[1])]
    schema: dict[str, Any] = {"oneOf": branches, "discriminator": {"propertyName": "kind"}}
    if is_referenced:
        places = [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]
        schema |= {"oneOf": places, "$defs": dict(zip("AB", branches, strict=True))}
    form = kept_form(schema)
    assert "oneOf" not in form
    told = list(form["$defs"].values()) if is_referenced else form["anyOf"]
    assert [each["required"] for each in told] == [["kind"], ["kind"]]


@pytest.mark.parametrize(
    "branches",
    [
        [kind("a"), kind("a")],
        [{"type": "number"}, {"type": "integer"}],
        [{"properties": {"kind": {"const": "a"}}}, {"properties": {"kind": {"const": "b"}}}],
        [kind(1), kind(1.0)],
        [{"$ref": "#"}, kind("a")],
        [{"$ref": "#/$defs/none"}, kind("a")],
    ],
)
def test_branches_that_may_both_hold_stay_alternatives_of_which_one_holds(
    branches: list[Any],
) -> None:
    assert "oneOf" in kept_form({"oneOf": branches})


def test_branches_of_other_types_are_apart() -> None:
    form = kept_form({"oneOf": [kind("a"), {"type": "null"}, {"type": ["string", "boolean"]}]})
    assert [each.get("required") for each in form["anyOf"]] == [None, None, None]


CLOSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an object": ({"properties": {"a": {}}}, {"additionalProperties": False}),
    "what is required is known": (
        {"properties": {"a": {}}, "required": ["a", "b"]},
        {"properties": {"a": {}, "b": True}, "additionalProperties": False},
    ),
    "others are allowed": ({"properties": {"a": {}}, "additionalProperties": True}, {}),
    "patterns": ({"properties": {"a": {}}, "patternProperties": {"^x": {}}}, {}),
    "no property": ({"type": "object"}, {}),
    "more than are named": ({"properties": {"a": {}}, "minProperties": 2}, {}),
    "a tuple": ({"prefixItems": [{}]}, {"items": False}),
    "a longer tuple": ({"prefixItems": [{}], "minItems": 2}, {}),
    "joined": (
        {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}, "required": ["c"]}]},
        {
            "allOf": [
                {"properties": {"a": {}}},
                {"properties": {"b": {}}, "required": ["c"]},
                {
                    "properties": {"b": True, "c": True, "a": True},
                    "additionalProperties": False,
                },
            ]
        },
    ),
}


@pytest.mark.parametrize("name", CLOSED)
def test_what_a_schema_leaves_out_is_not_in_its_objects(name: str) -> None:
    schema, added = CLOSED[name]
    form = kept_form(schema)
    assert form == schema | added
    inside = kept_form({"anyOf": [schema, {"type": "null"}]})
    assert inside["anyOf"][0] == schema | added


def test_a_schema_that_others_are_joined_with_stays_open() -> None:
    base: dict[str, Any] = {"properties": {"a": {}}}
    schema = {
        "$defs": {"base": base, "alone": {"properties": {"z": {"$ref": "#/$defs/alone"}}}},
        "properties": {
            "one": {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {}}}]},
            "two": {"$ref": "#/$defs/base"},
            "three": {"$ref": "#/$defs/alone", "description": "a note"},
        },
    }
    form = kept_form(schema)
    assert form["$defs"]["base"] == base
    assert form["$defs"]["alone"]["additionalProperties"] is False
    assert form["properties"]["one"]["allOf"][-1]["additionalProperties"] is False


@given(schema=SCHEMAS)
@settings(
    max_examples=200,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
def test_a_form_allows_nothing_that_its_schema_does_not(schema: dict[str, Any]) -> None:
    """Of 30 values each; and the schema itself is left as it was."""
    whole = {**schema, "$defs": {"tree": TREE}}
    before = repr(whole)
    form = kept_form(whole)
    assert repr(whole) == before
    strict, loose = (jsonschema.Draft202012Validator(each) for each in (form, whole))
    for value in SAMPLES:
        if strict.is_valid(value):
            assert loose.is_valid(value), value


SAMPLES: list[Any] = [
    *(None, True, 0, 3, -5, 0.5, "", "a", "ab", "x y", "2024-02-29", "2023-02-29", "123"),
    *([], [1], ["a", None], [[]], {}, {"a": 1}, {"a": 1, "b": "x"}, {"name": "a", "x y": 2}),
    *({"x": 3}, {"x": 3, "next": []}, {"ab": {"a": 1}}, {"a": {"a": {"a": 1}}}, {"": 0}),
    *([{"a": 1}, {"b": 2}], {"a": [1, 2]}, {"kind": "a"}, {'q"': 1}),
]
