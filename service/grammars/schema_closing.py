"""Objects and arrays that end: what a schema leaves out is not in them.

A schema with `properties` but without `additionalProperties` allows any others behind them, and a
model that is not trained for it writes them until it is cut. So these are none, as peers have it
(xgrammar's strict mode, the default of vLLM and SGLang), and as in OpenAI's strict schemas. The
same holds for `prefixItems` without `items`. Others are allowed by `additionalProperties: true`, by
`items`, and where a schema names no property.

Where several schemas are for one value, each of them must know the names of all: such an object is
closed once, around them, and those within stay as they are. Pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from service.grammars.schema_places import (
    IN_PLACE,
    Schema,
    all_schemas,
    inner_schemas,
    target_of,
    with_inner,
)

NOTES = frozenset(
    ("$schema", "$id", "$defs", "definitions", "$comment", "title", "description", "default")
) | {"examples", "readOnly", "writeOnly", "$anchor", "deprecated"}
MAX_VISITS = 10_000  # of schemas that are for one value: what is added grows with them
OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties")


def closed(root: Schema) -> Schema:
    """The schema with its objects and arrays closed; the same where none is open."""
    document = _Document(root)
    return document.changed(root) if document.is_open else root


class _Document:
    """A document, and which of its schemas are alone for their values."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._num_visits = 0
        self._alone, self._beside = self._places()

    @property
    def is_open(self) -> bool:
        return any(self._is_alone(each) for _, each in all_schemas(self._root))

    def changed(self, schema: Schema) -> dict[str, Any]:
        """The schema, with those within it, closed."""
        copy = with_inner(schema, self.changed)
        if self._is_alone(schema):
            _close_items(copy)
            if _is_joined(schema):
                self._close_joined(schema, copy)
            else:
                _close_properties(copy)
        return copy

    def _is_alone(self, schema: Schema) -> bool:
        return id(schema) in self._alone and id(schema) not in self._beside

    def _places(self) -> tuple[set[int], set[int]]:
        """The schemas that are the only one for a value somewhere, and those that are not."""
        alone: set[int] = set()
        beside: set[int] = set()
        waiting: list[tuple[Schema, bool]] = [(self._root, False)]
        while waiting:
            schema, is_beside = waiting.pop()
            seen = beside if is_beside else alone
            if id(schema) in seen:
                continue
            seen.add(id(schema))
            is_joined = is_beside or _is_joined(schema)
            for (keyword, *_), inner in inner_schemas(schema):
                if isinstance(inner, Mapping) and keyword not in ("$defs", "definitions"):
                    waiting.append((inner, is_joined))
            if (target := target_of(self._root, schema)) is not None:
                waiting.append((target, is_joined))
        return alone, beside

    def _close_joined(self, schema: Schema, copy: dict[str, Any]) -> None:
        parts = list(self._parts(schema))
        self._num_visits += len(parts)
        if self._num_visits > MAX_VISITS:
            return
        if any(keyword in part for part in parts for keyword in OPEN):
            return
        if any(part.get("properties") for part in parts):
            known = {name: True for part in parts for name in _names(part)}
            around = {"properties": known, "additionalProperties": False}
            copy["allOf"] = [*copy.get("allOf", ()), around]

    def _parts(self, schema: Schema) -> Iterator[Schema]:
        """The schemas that are for the same value as one."""
        seen: set[int] = set()
        waiting = [schema]
        while waiting:
            each = waiting.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            yield each
            for (keyword, *_), inner in inner_schemas(each):
                if keyword in IN_PLACE and isinstance(inner, Mapping):
                    waiting.append(inner)
            if (target := target_of(self._root, each)) is not None:
                waiting.append(target)


def _is_joined(schema: Schema) -> bool:
    """Whether several schemas are for one value; not a mere reference, or mere alternatives."""
    in_place = [keyword for keyword in (*IN_PLACE, "$ref") if keyword in schema]
    others = schema.keys() - NOTES - {*in_place}
    return bool(in_place) and (len(in_place) > 1 or bool(others) or "allOf" in in_place)


def _names(schema: Schema) -> list[str]:
    properties, required = schema.get("properties"), schema.get("required")
    names = [*properties] if isinstance(properties, Mapping) else []
    names += (
        [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    )
    return names


def _close_properties(copy: dict[str, Any]) -> None:
    properties = copy.get("properties")
    if not isinstance(properties, Mapping) or not properties or any(each in copy for each in OPEN):
        return
    least = copy.get("minProperties")
    names = dict.fromkeys(_names(copy))
    if isinstance(least, int | float) and least > len(names):
        return
    copy["properties"] = {**properties, **{n: True for n in names if n not in properties}}
    copy["additionalProperties"] = False


def _close_items(copy: dict[str, Any]) -> None:
    prefix, least = copy.get("prefixItems"), copy.get("minItems", 0)
    is_long = isinstance(least, int | float) and isinstance(prefix, list) and least > len(prefix)
    if isinstance(prefix, list) and prefix and "items" not in copy and not is_long:
        copy["items"] = False
