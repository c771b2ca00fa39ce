"""What is wrong with a schema is said with its place and what was expected there."""

from typing import Any

import pytest

from service.grammars.schema_faults import EXPECTED, MAX_SHOWN, fault_of, meaning_of

WRONG: dict[str, tuple[Any, ...]] = {
    "type": ("text", [], ["number", "text"], 3),
    "enum": ([], "a", {}),
    "minimum": ("5", None, []),
    "multipleOf": (0, "2"),
    "minLength": (-1, 1.5, "2"),
    "pattern": (3, None),
    "$ref": (3, {}),
    "items": ("a", 3),
    "prefixItems": ({}, [3]),
    "properties": ([], {"a": 3}),
    "required": ("a", [1]),
    "anyOf": ([], {}, ["a"]),
}
RIGHT: tuple[dict[str, Any], ...] = (
    {"type": ["string", "null"], "enum": ["a", None], "maxLength": 3.0},
    {"properties": {"minimum": {"minimum": 1.5}, "a": True}, "required": []},
    {"items": [{}], "additionalProperties": False, "allOf": [], "prefixItems": []},
    {"const": {"type": 3}, "default": {"enum": []}, "description": 3, "exclusiveMinimum": True},
)


@pytest.mark.parametrize("keyword", WRONG)
def test_a_value_of_another_type_is_named_by_its_place(keyword: str) -> None:
    for value in WRONG[keyword]:
        for schema, place in (
            ({keyword: value}, keyword),
            ({"properties": {"a": {keyword: value}}}, f"properties.a.{keyword}"),
            ({"anyOf": [{}, {keyword: value}]}, f"anyOf.1.{keyword}"),
        ):
            fault = fault_of(schema)
            assert fault is not None, schema
            assert fault.startswith(f"at '{place}': "), fault
            assert fault.endswith(f"expected {EXPECTED[keyword]}")


def test_the_value_is_shown_and_a_long_one_is_cut() -> None:
    """With its quotes a text of 98 letters has as many as are shown."""
    assert fault_of({"minimum": "é"}) == "at 'minimum': \"é\", expected a number"
    whole, longer = "a" * (MAX_SHOWN - 2), "a" * (MAX_SHOWN - 1)
    assert fault_of({"minimum": whole}) == f"at 'minimum': \"{whole}\", expected a number"
    assert fault_of({"minimum": longer}) == f"at 'minimum': \"{longer}..., expected a number"


@pytest.mark.parametrize("schema", RIGHT)
def test_what_json_schema_has_is_no_fault(schema: dict[str, Any]) -> None:
    assert fault_of(schema) is None


def test_errors_of_the_compilers_code_are_said_in_words() -> None:
    assert meaning_of("NoExtensionBias") == "a part of it refers to itself without end"
    assert "must" not in meaning_of("Failed to generate regex for integer range: min=Some(3)")
    assert meaning_of("minimum (3) is equal to exclusiveMaximum (3)") == (
        "minimum (3) is equal to exclusiveMaximum (3): no value is between them"
    )
    assert meaning_of('Unimplemented keys: ["not"]') == 'Unimplemented keys: ["not"]'
