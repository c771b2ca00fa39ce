"""What a JSON schema may not have as the form of an output, known before it is compiled.

Some would take unbounded time to compile; of others the compiler allows values that they do not
(llguidance 1.9). Both are refused. Pure.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import inf, lcm
from typing import Any, TypeGuard

from service.errors import InvalidArgument, invalid_field

OPTIONS = "x-guidance"  # the compiler's own options in a schema, by which it may ignore keywords
MAX_NESTING = 96  # of a schema; the compiler's own limit is 128, with what is put around it
# The least common multiple of a schema's multipleOf, in units of their smallest digit: a remainder
# is a state of the automaton, and 1000 of them compile in about 30 ms.
MAX_MULTIPLE = 1_000
JOINING = ("allOf", "anyOf", "oneOf")  # whose members are for the same value
Schema = Mapping[str, Any]


def check_schema(schema: Schema) -> None:
    """Raise `InvalidArgument` for what a schema may not have, at any depth."""
    multiples = set()
    for inner in _objects(schema):
        if OPTIONS in inner:
            raise _refused(f"has {OPTIONS}, expected keywords of JSON schema")
        _check_least(inner)
        _check_bounds(inner)
        if _is_number(multiple := inner.get("multipleOf")):
            multiples.add(_fraction(multiple))
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


def _check_bounds(schema: Schema) -> None:
    """Refuse a whole number as an exclusive bound where no other whole one is within the bounds.

    The compiler takes it for an inclusive one: 3 would be in 3 to 3.5, and -3 in -3.5 to -3.
    """
    lows: list[float] = [-inf]
    highs: list[float] = [inf]
    exclusive: list[float] = []
    for part in _joined(schema):
        for own, bounds in (("minimum", lows), ("maximum", highs)):
            value, limit = part.get(own), part.get(f"exclusiveM{own[1:]}")
            if limit is True:  # as draft 4 has it
                limit = value
            bounds += filter(_is_number, (value, limit))
            exclusive += filter(_is_number, (limit,))
    low, high = max(lows), min(highs)
    for bound in filter(_is_whole, exclusive):
        is_alone_below = bound == low >= 0 and high < low + 1
        is_alone_above = bound == high <= 0 and low > high - 1
        if is_alone_below or is_alone_above:
            raise _refused(
                f"has numbers from {low} to {high} without {bound}, which is not kept to where no "
                "other whole number is among them: take a bound with a fraction"
            )


def _joined(schema: Schema) -> Iterator[Schema]:
    """A schema, and those that it joins for the same value."""
    yield schema
    for keyword in JOINING:
        members = schema.get(keyword)
        for member in members if isinstance(members, list | tuple) else ():
            if isinstance(member, Mapping):
                yield from _joined(member)


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


def _is_whole(number: float) -> bool:
    return isinstance(number, int) or number.is_integer()


def _fraction(number: float) -> Fraction:
    try:
        return Fraction(str(number))
    except ValueError as error:  # infinite, or not a number
        raise _refused(f"has multipleOf {number}") from error


def _refused(reason: str) -> InvalidArgument:
    return invalid_field("json_schema", reason)
