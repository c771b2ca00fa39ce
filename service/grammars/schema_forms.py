"""A JSON schema in the form in which the compiler keeps to it (llguidance 1.9).

    formats          those that are not known are annotations, as JSON Schema has it, and dropped
    dates            patterns in which 29 February is in leap years only, from year 1 on
    expressions      classes of characters are ASCII
    alternatives     `oneOf` whose branches are apart by their types or by a property with fixed
                     values becomes `anyOf`, and the property is required where it was not
    other properties `additionalProperties`, left out beside `properties`, is false: else a weak
                     model may write properties until it is cut (`schema_closing.py`)
    64 bits          a minimum of -2^63, which the compiler cannot count to, is 1024 more

What comes out allows no value that the schema does not. Pure.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, TypeGuard

from service.grammars.expressions import with_ascii_classes
from service.grammars.schema_closing import closed
from service.grammars.schema_places import Schema, all_schemas, target_of, with_inner

KNOWN_FORMATS = frozenset(("duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"))
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = (
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"  # not 0000
)
_DAY = "(?:0[1-9]|1[0-9]|2[0-8])"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-{_DAY}|(?:0[13-9]|1[0-2])-(?:29|30)|"
    f"(?:0[13578]|1[02])-31)|{_LEAP_YEAR}-02-29)"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
    "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
FORMAT_PATTERNS = {
    "date": f"^{_DATE}$",
    "time": f"^{_TIME}$",
    "date-time": f"^{_DATE}[tT]{_TIME}$",
}
LEAST_64, NEAREST_LEAST = -(2**63), -(2**63) + 1024  # the latter is the next that is a double
MAX_BRANCHES = 100  # of a `oneOf`, which are compared two by two
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def kept_form(schema: Schema) -> dict[str, Any]:
    """The schema as the compiler is to read it."""
    form = closed(_Alternatives(schema).apart())
    return _changed(form)


def unenforced_formats(schema: Schema) -> list[str]:
    """The names of formats that outputs are not held to, in the order of the schema."""
    found = (each.get("format") for _, each in all_schemas(schema))
    return list(dict.fromkeys(name for name in found if _is_annotation(name)))


def _is_annotation(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and name not in KNOWN_FORMATS and name not in FORMAT_PATTERNS


def _changed(schema: Schema) -> dict[str, Any]:
    """The schema and those within it, each in its form."""
    return _form_of(with_inner(schema, _changed))


def _form_of(schema: dict[str, Any]) -> dict[str, Any]:
    if isinstance(pattern := schema.get("pattern"), str):
        schema["pattern"] = with_ascii_classes(pattern)
    name = schema.get("format")
    if _is_annotation(name):
        del schema["format"]
    elif isinstance(name, str) and name in FORMAT_PATTERNS:
        del schema["format"]
        pattern = FORMAT_PATTERNS[name]
        if "pattern" in schema:
            schema["allOf"] = [*schema.get("allOf", ()), {"pattern": pattern}]
        else:
            schema["pattern"] = pattern
    return schema | kept_bounds(schema)


def kept_bounds(schema: Schema) -> dict[str, Any]:
    """The bounds of numbers, of which the least of 64 bits is the next that is a double."""
    bounds = {name: schema[name] for name in BOUNDS if name in schema}
    return bounds | {"minimum": NEAREST_LEAST} if bounds.get("minimum") == LEAST_64 else bounds


class _Alternatives:
    """`oneOf` of a document, where its branches are apart."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._required: dict[int, list[str]] = {}  # by the identity of a schema: what tells it
        self._apart: set[int] = set()  # schemas whose `oneOf` may be `anyOf`

    def apart(self) -> Schema:
        """The document with `anyOf` in place of each `oneOf` whose branches are apart."""
        schemas = [each for _, each in all_schemas(self._root)]
        # A reference into a `oneOf` would lead nowhere.
        if any("oneOf" in str(each.get("$ref", "")) for each in schemas):
            return self._root
        for each in schemas:
            branches = each.get("oneOf")
            if isinstance(branches, list) and "anyOf" not in each:
                self._look_at(each, branches)
        return self._changed(self._root) if self._apart else self._root

    def _look_at(self, schema: Schema, branches: list[Any]) -> None:
        if len(branches) > MAX_BRANCHES or not all(isinstance(each, Mapping) for each in branches):
            return
        resolved = [self._resolved(branch) for branch in branches]
        targets = [_Branch.of(each) for each in resolved if each is not None]
        if len(targets) < len(branches):
            return
        told: list[tuple[Schema, str]] = []
        for one, other in combinations(targets, 2):
            if one.kinds.isdisjoint(other.kinds):
                continue
            if (name := _telling(one, other)) is None:
                return
            told += [(one.schema, name), (other.schema, name)]
        self._apart.add(id(schema))
        for target, name in told:
            names = self._required.setdefault(id(target), [])
            if name not in names:
                names.append(name)

    def _resolved(self, branch: Schema) -> Schema | None:
        """The schema of a branch, behind references that have nothing beside them."""
        seen: set[int] = set()
        while "$ref" in branch:
            target = target_of(self._root, branch)
            if target is None or id(branch) in seen:
                return None
            seen.add(id(branch))
            branch = target
        return branch

    def _changed(self, schema: Schema) -> dict[str, Any]:
        copy = with_inner(schema, self._changed)
        if names := self._required.get(id(schema)):
            required = [*copy.get("required", ())]
            copy["required"] = [*required, *(name for name in names if name not in required)]
        if id(schema) in self._apart:
            copy = {"anyOf" if key == "oneOf" else key: value for key, value in copy.items()}
        return copy


def _kinds(schema: Schema) -> frozenset[str]:
    """The types of a schema's values; all where it says none."""
    kinds = schema.get("type")
    named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    known = {str(kind) for kind in named} or {*_ALL_KINDS}
    return frozenset("number" if kind == "integer" else kind for kind in known)


_ALL_KINDS = ("null", "boolean", "number", "string", "array", "object")


@dataclass(frozen=True, slots=True)
class _Branch:
    """A branch, and what may tell its values from those of others."""

    schema: Schema
    kinds: frozenset[str]
    fixed: Mapping[str, frozenset[str]]  # by property: the values that it may have

    @classmethod
    def of(cls, schema: Schema) -> "_Branch":
        kinds = _kinds(schema)
        return cls(schema, kinds, dict(_fixed_values(schema)) if kinds == {"object"} else {})


def _telling(one: _Branch, other: _Branch) -> str | None:
    """A property whose fixed values tell two kinds of objects apart, if there is one."""
    both = (name for name in one.fixed if name in other.fixed)
    return next((name for name in both if one.fixed[name].isdisjoint(other.fixed[name])), None)


def _fixed_values(schema: Schema) -> Iterator[tuple[str, frozenset[str]]]:
    properties = schema.get("properties")
    for name, inner in properties.items() if isinstance(properties, Mapping) else ():
        if not isinstance(inner, Mapping):
            continue
        if "const" in inner:
            yield name, frozenset([_text(inner["const"])])
        elif isinstance(inner.get("enum"), list):
            yield name, frozenset(map(_text, inner["enum"]))


def _text(value: object) -> str:
    """Equal for equal values of JSON: 1 and 1.0 are one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)
