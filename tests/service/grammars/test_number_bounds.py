"""Bounds of numbers that meet in a schema: which would be lost, where, and at what cost."""

import json
import time
from typing import Any

import pytest

from service.errors import InvalidArgument
from service.grammars.form import Grammar

ABOVE, TO = {"type": "number", "exclusiveMinimum": 3}, {"maximum": 3.5}
REST = {"additionalProperties": {"maximum": 2}}
DEFS = {"above": ABOVE, "to": TO}
MOST_S = 1.0  # of processor time, far above what is measured


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def an(a: object, **more: object) -> dict[str, Any]:
    return {"properties": {"a": a}, **more}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({**ABOVE, **TO}, ""),
        ({"$defs": DEFS, **ref("above"), **TO}, ""),
        ({"$defs": DEFS, **ref("to"), **ABOVE}, ""),
        ({"$defs": DEFS, "allOf": [ref("above"), ref("to")]}, ""),
        ({"$defs": {**DEFS, "both": {**ref("above"), **TO}}, **ref("both")}, ""),
        ({"$defs": {"a/b c": ABOVE}, "$ref": "#/$defs/a~1b%20c", **TO}, ""),
        ({"$defs": {"a~b": ABOVE}, "$ref": "#/$defs/a~0b", **TO}, ""),
        ({"$defs": {"x": {"$anchor": "q", **ABOVE}}, "$ref": "#q", **TO}, ""),
        ({"$defs": {"x": {"$id": "#q", **ABOVE}}, "$ref": "#q", **TO}, ""),
        ({"definitions": {"x": {"id": "#q", **ABOVE}}, "$ref": "#q", **TO}, ""),
        ({"$id": "http://a/b", "$defs": {"x": {"$id": "c", **ABOVE}}, "$ref": "c", **TO}, ""),
        ({"definitions": {"x": ABOVE}, "allOf": [{"$ref": "#/definitions/x"}, TO]}, ""),
        ({**ABOVE, "anyOf": [{"minimum": 5}, TO]}, ""),
        ({"anyOf": [{"type": "null"}, {"oneOf": [{"allOf": [ABOVE, TO]}]}]}, ""),
        ({"allOf": [{"anyOf": [ABOVE, {"type": "null"}]}, {"oneOf": [TO, {}]}]}, ""),
        ({"allOf": [an(ABOVE), an(TO)]}, "a"),
        (an(ABOVE, allOf=[{"additionalProperties": TO}]), "a"),
        (an(ABOVE, patternProperties={"^a": TO}), "a"),
        (an({**ABOVE, **TO}, patternProperties={"^b": {"maximum": 2}}), "a"),
        ({"allOf": [an(ABOVE), an(TO), {"patternProperties": {"^a": {}}, **REST}]}, "a"),
        ({"patternProperties": {"^a": ABOVE}, "allOf": [{"patternProperties": {"^a": TO}}]}, "*"),
        (an({"$defs": {"a": 1}, **ABOVE}, anyOf=[an(an(1)), an(TO), {}]), "a"),
        ({"properties": {"n": ABOVE, "m": {"$ref": "#/properties/n", **TO}}}, "m"),
        ({"$defs": {"n": {"allOf": [ABOVE]}}, "items": {**ref("n/allOf/0"), **TO}}, "items"),
        (an(an(ABOVE), allOf=[an(an(TO))]), "a.a"),
        (an(ABOVE) | {"properties": {"a": ABOVE, "b": {"$ref": "#", **an(TO)}}}, "b.a"),
        ({"allOf": [{"items": ABOVE}, {"items": TO}]}, "items"),
        ({"prefixItems": [{}, ABOVE], "allOf": [{"items": TO}]}, "1"),
        ({"items": [ABOVE], "allOf": [{"items": [TO]}]}, "0"),
        ({"items": [{}], "additionalItems": ABOVE, "allOf": [{"items": TO}]}, "items"),
    ],
)  # fmt: skip
def test_a_bound_that_would_be_lost_where_schemas_meet_is_refused_with_its_place(
    schema: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Grammar.of("json_schema", schema)
    assert caught.value.field == "json_schema"
    at = f" at '{place}'" if place else ""
    assert str(caught.value) == (
        f"json_schema has numbers from 3 to 3.5 without 3{at}, which is not kept to where no "
        "other whole number is among them: take a bound with a fraction"
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": ABOVE, "b": TO}},
        {"anyOf": [ABOVE, TO]},
        {"oneOf": [{"items": ABOVE}, {"items": TO}]},
        {"anyOf": [an(ABOVE), an(TO)]},
        {"prefixItems": [ABOVE, TO]},
        {"prefixItems": [ABOVE], "items": TO},
        an(ABOVE, additionalProperties=TO),
        {"$defs": DEFS, **an(ref("above")), "items": ref("to")},
        {"$defs": {"both": {**ABOVE, **TO}}},  # which nothing refers to
        {"enum": [{**ABOVE, **TO}]},
        {**ABOVE, "allOf": [{"maximum": 3.5, "minimum": 3.25}]},
        {**ABOVE, "allOf": [TO, {"maximum": 2}]},  # no number at all
        {"allOf": [{"minimum": 3}, {"exclusiveMinimum": True}, TO]},
        {"exclusiveMinimum": False, "maximum": 0.5},
        {"allOf": [an(ABOVE), an(TO), an({"maximum": 2})]},
        {"allOf": [an(ABOVE), an(TO), REST]},
        {"$ref": "#/$defs/absent", **ABOVE, "$defs": [TO]},
        {"$ref": "#/allOf/7", **ABOVE, "allOf": [{}], "else": TO},
        {"$ref": 5, **ABOVE, "allOf": TO, "items": 5, "properties": [TO]},
        {"properties": {**DEFS, "left": {"$ref": "#"}, "right": {"anyOf": [{"$ref": "#"}, {}]}}},
        {"anyOf": [an({"$ref": "#"}, items=ABOVE), {"items": TO, **an({"$ref": "#"})}]},
    ],
)
def test_bounds_that_do_not_meet_are_taken(schema: dict[str, Any]) -> None:
    assert Grammar.of("json_schema", schema).text == json.dumps(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"exclusiveMinimum": 3, "maximum": 4},
        {"exclusiveMinimum": 3, "exclusiveMaximum": 4},
        {"minimum": -4, "exclusiveMaximum": -3},
        {"exclusiveMinimum": 3, "maximum": 3},
        {"minimum": -3, "exclusiveMaximum": -3},
        {"exclusiveMinimum": -3, "maximum": -2.5},
        {"exclusiveMaximum": 3, "minimum": 2.5},
    ],
)
def test_ranges_that_are_kept_to_are_taken_beside_bounds_that_are_near(
    schema: dict[str, Any],
) -> None:
    """Of other properties, so that all ranges are looked at."""
    beside = {"properties": {"bounded": schema, "above": ABOVE, "to": TO}}
    assert Grammar.of("json_schema", beside).text == json.dumps(beside)


def test_a_bound_of_zero_is_lost_on_both_sides() -> None:
    for bounds in (
        {"exclusiveMinimum": 0, "maximum": 0.5},
        {"minimum": -0.5, "exclusiveMaximum": 0},
    ):
        with pytest.raises(InvalidArgument, match="without 0, which is not kept to"):
            Grammar.of("json_schema", bounds)


def test_one_lost_bound_is_found_among_many_others() -> None:
    bounds = [{"minimum": low} for low in (-20, -7, 0, 5)] + [{"maximum": high} for high in (-9, 8)]
    lost = {"minimum": -3.5, "exclusiveMaximum": -3}
    with pytest.raises(InvalidArgument, match=r"from -3\.5 to -3 without -3 at '6'"):
        Grammar.of("json_schema", {"prefixItems": [*bounds, lost]})


def doubling(keyword: str) -> dict[str, Any]:
    """Forty definitions, each with two references to the next one."""
    links = {f"d{each}": {keyword: [ref(f"d{each + 1}")] * 2} for each in range(40)}
    return {"$defs": {**links, "d40": ABOVE}, **ref("d0"), **TO}


BETWEEN = [{"anyOf": [{"minimum": each}, {"maximum": each}]} for each in range(200)]


def fibonacci() -> dict[str, Any]:
    links = {
        f"d{each}": {"anyOf": [ref(f"d{each + 1}"), ref(f"d{each + 2}")]} for each in range(40)
    }
    return {"$defs": {**links, "d40": ABOVE, "d41": TO}, **ref("d0")}


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (doubling("allOf"), "take a bound with a fraction"),
        (doubling("anyOf"), "in too many ways to be compared: take bounds with a fraction"),
        (fibonacci(), "in too many ways to be compared: take bounds with a fraction"),
        ({"allOf": [an(TO), *({"properties": {f"p{n}": ABOVE}} for n in range(900))]}, "too many"),
        ({"allOf": [*BETWEEN, {"not": [ABOVE, TO]}]}, "too many"),
    ],
)
def test_bounds_that_meet_in_many_ways_cost_little(schema: dict[str, Any], text: str) -> None:
    started_s = time.thread_time()
    with pytest.raises(InvalidArgument, match=text):
        Grammar.of("json_schema", schema)
    assert time.thread_time() - started_s < MOST_S


def test_many_properties_whose_bounds_do_not_meet_are_taken() -> None:
    """As many as a schema has room for."""
    many = {f"p{each}": (ABOVE, TO)[each % 2] for each in range(1_000)}
    assert Grammar.of("json_schema", {"properties": many})
