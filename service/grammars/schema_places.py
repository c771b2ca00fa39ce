"""The schemas within a JSON schema, by where they stand, and what a local `$ref` leads to. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

Schema = Mapping[str, Any]
NAMED = ("properties", "patternProperties", "$defs", "definitions")  # schemas by name
LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLE = ("items", "additionalItems", "additionalProperties")
IN_PLACE = ("allOf", "anyOf", "oneOf")  # of the same value, as `$ref` is
MAX_PATH = 200  # characters in a message


def inner_schemas(schema: Schema) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The schemas right below one, each with the steps to it; some may be no objects."""
    for keyword, value in schema.items():
        if keyword in NAMED and isinstance(value, Mapping):
            for name, inner in value.items():
                yield (keyword, name), inner
        elif (keyword in LISTED or keyword == "items") and isinstance(value, list):
            for place, inner in enumerate(value):
                yield (keyword, str(place)), inner
        elif keyword in SINGLE:
            yield (keyword,), value


def all_schemas(schema: Schema) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Every schema that is an object, with the steps to it; the outermost first."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    while waiting:
        steps, each = waiting.pop()
        if isinstance(each, Mapping):
            yield steps, each
            inner = [((*steps, *more), value) for more, value in inner_schemas(each)]
            waiting += reversed(inner)


def path_of(steps: tuple[str, ...]) -> str:
    """The steps as text, for people; empty for the whole schema."""
    path = ".".join(steps)
    return path if len(path) <= MAX_PATH else f"{path[:MAX_PATH]}..."


def target_of(root: Schema, schema: Schema) -> Schema | None:
    """Target of a schema's `$ref` within the document; None where it leads nowhere."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    value: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value if isinstance(value, Mapping) else None


def with_inner(schema: Schema, change: Callable[[Schema], object]) -> dict[str, Any]:
    """A copy of a schema whose inner schemas are changed."""
    copy: dict[str, Any] = dict(schema)
    for steps, inner in inner_schemas(schema):
        if not isinstance(inner, Mapping):
            continue
        keyword, *rest = steps
        if not rest:
            copy[keyword] = change(inner)
            continue
        if copy[keyword] is schema[keyword]:
            copy[keyword] = schema[keyword].copy()
        where = int(rest[0]) if isinstance(copy[keyword], list) else rest[0]
        copy[keyword][where] = change(inner)
    return copy
