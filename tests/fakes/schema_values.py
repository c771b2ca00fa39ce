"""Values for a JSON Schema, right ones and some that are not, of the words that ours use."""

from typing import Any

from hypothesis import strategies as some

MAX_SIZE, MAX_DEPTH = 3, 6
WORDS = (
    "",
    "win a prize",
    "win the [MASK]",
    "once",
    "3",
    "spam",
    "mini",
    "fills",
    "tale",
    "writes",
)
ANYTHING = some.recursive(
    some.none() | some.booleans() | some.integers() | some.sampled_from(WORDS),
    lambda inner: (
        some.lists(inner, max_size=MAX_SIZE)
        | some.dictionaries(some.sampled_from(WORDS), inner, max_size=MAX_SIZE)
    ),
    max_leaves=4,
)
OF_TYPES: dict[str, some.SearchStrategy[Any]] = {
    "string": some.sampled_from(WORDS) | some.text(max_size=8),
    "boolean": some.booleans(),
    "number": some.floats(allow_nan=False, allow_infinity=False, width=32),
    "null": some.none(),
}


def values_of(
    schema: dict[str, Any], schemas: dict[str, Any], depth: int = 0
) -> some.SearchStrategy[Any]:
    """Mostly what a schema describes; now and then anything else in a place of it."""
    right = _right(schema, schemas, depth + 1)
    return some.integers(0, 30).flatmap(lambda drawn: ANYTHING if drawn == 30 else right)


def _right(schema: dict[str, Any], schemas: dict[str, Any], depth: int) -> some.SearchStrategy[Any]:
    if depth > MAX_DEPTH or not schema:
        return ANYTHING
    if "$ref" in schema:
        return _right(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth)
    if "anyOf" in schema:
        return some.one_of([_right(each, schemas, depth) for each in schema["anyOf"]])
    if "enum" in schema:
        return some.sampled_from(schema["enum"])
    if "type" not in schema:
        return ANYTHING
    if schema["type"] == "array":
        items = values_of(schema.get("items", {}), schemas, depth)
        return some.lists(items, max_size=MAX_SIZE)
    if schema["type"] == "integer":
        low, high = schema.get("minimum", -10), schema.get("maximum", 2**40)
        return some.integers(max(low, 0), min(high, 4)) | some.integers(low, high)
    if schema["type"] == "object":
        return _objects(schema, schemas, depth)
    return OF_TYPES[schema["type"]]


def _objects(
    schema: dict[str, Any], schemas: dict[str, Any], depth: int
) -> some.SearchStrategy[Any]:
    if "properties" not in schema:
        inner = values_of(schema.get("additionalProperties") or {}, schemas, depth)
        return some.dictionaries(some.sampled_from(WORDS), inner, max_size=MAX_SIZE)
    required = set(schema.get("required", ()))
    fields = {name: values_of(each, schemas, depth) for name, each in schema["properties"].items()}
    always = {name: fields[name] for name in required}
    other = [name for name in fields if name not in required]
    chosen = some.sets(some.sampled_from(other), max_size=4) if other else some.just(set())
    return chosen.flatmap(
        lambda names: some.fixed_dictionaries(always | {name: fields[name] for name in names})
    )
