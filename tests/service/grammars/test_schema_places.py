"""Targets of references within a schema."""

from typing import Any

import pytest

from service.grammars.schema_places import target_of

ROOT: dict[str, Any] = {
    "$defs": {"a/b": {"minimum": 1}, "c~d": {"minimum": 2}, "e f": {"minimum": 3}},
    "anyOf": [{"minimum": 4}, True],
    "title": "text",
}


@pytest.mark.parametrize(
    ("reference", "minimum"),
    [
        ("#/$defs/a~1b", 1),
        ("#/$defs/c~0d", 2),
        ("#/$defs/e%20f", 3),
        ("#/anyOf/0", 4),
    ],
)
def test_a_reference_leads_to_a_schema(reference: str, minimum: int) -> None:
    assert target_of(ROOT, {"$ref": reference}) == {"minimum": minimum}


def test_a_reference_may_lead_to_the_whole() -> None:
    assert target_of(ROOT, {"$ref": "#"}) is ROOT


@pytest.mark.parametrize(
    "reference",
    [
        *("#/$defs/none", "#/anyOf/1", "#/anyOf/2", "#/anyOf/-1", "#/anyOf/x", "#/title"),
        *("#/title/0", "#a", "other.json#/$defs", "", 3, None),
    ],
)
def test_other_references_lead_nowhere(reference: object) -> None:
    assert target_of(ROOT, {"$ref": reference}) is None
    assert target_of(ROOT, {}) is None
