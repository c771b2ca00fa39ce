"""Checks of a JSON schema as the form of an output, made before it is compiled.

Some would take unbounded time to compile; of others the compiler allows values that they do not
(llguidance 1.9). Both are refused. Pure.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import lcm
from typing import Any, TypeGuard

from service.errors import InvalidArgument, invalid_field
from service.grammars.number_bounds import check_bounds

OPTIONS = "x-guidance"  # the compiler's own options in a schema, by which it may ignore keywords
MAX_NESTING = 96  # of a schema; the compiler's own limit is 128, with what is put around it
# The least common multiple of a schema's multipleOf, in units of their smallest digit: a remainder
# is a state of the automaton, and 1000 of them compile in about 30 ms.
MAX_MULTIPLE = 1_000
Schema = Mapping[str, Any]


def check_schema(schema: Schema) -> None:
    """Raise `InvalidArgument` for what a schema may not have, at any depth."""
    multiples = set()
    objects = list(_objects(schema))
    for inner in objects:
        if OPTIONS in inner:
            raise _refused(f"has {OPTIONS}, expected keywords of JSON schema")
        _check_least(inner)
        if _is_number(multiple := inner.get("multipleOf")):
            multiples.add(_fraction(multiple))
    check_bounds(schema, objects)
    units = max((each.denominator for each in multiples), default=1)
    least = lcm(*(max(1, int(abs(each) * units)) for each in multiples))
    if least > MAX_MULTIPLE:
        raise _refused(
            f"has multipleOf whose least common multiple is {least}, expected at most "
            f"{MAX_MULTIPLE}: check larger ones in the answer"
        )


def _check_least(schema: Schema) -> None:
    """Refuse more properties than are sure to differ: those beside `required` may be one twice."""
    least, required = schema.get("minProperties"), schema.get("required", ())
    if not _is_number(least) or not isinstance(required, list | tuple):
        return
    most = 1 + len({name for name in required if isinstance(name, str)})
    if least > most:
        raise _refused(
            f"has minProperties {least} beside {most - 1} required, expected at most {most}: "
            "others may repeat a name; require more by name"
        )


def _objects(value: object, depth: int = 1) -> Iterator[Schema]:
    """Every object, at any depth."""
    if depth > MAX_NESTING:
        raise _refused(f"is nested deeper than {MAX_NESTING}")
    if isinstance(value, Mapping):
        yield value
        for inner in value.values():
            yield from _objects(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _objects(inner, depth + 1)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _fraction(number: float) -> Fraction:
    try:
        return Fraction(str(number))
    except ValueError as error:  # infinite, or not a number
        raise _refused(f"has multipleOf {number}") from error


def _refused(reason: str) -> InvalidArgument:
    return invalid_field("json_schema", reason)
