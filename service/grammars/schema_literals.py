"""The literals and the bounds of a JSON schema, as texts that must or must not be its values.

A compiler that counts in doubles takes 9007199254740993 for 9007199254740992. So each literal of
`const` and `enum` is to be walked through what was compiled, and each bound: the numbers at it must
be taken, and those right behind it must not. Pure.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, isfinite
from typing import Any, TypeGuard

from service.grammars.schema_forms import kept_bounds
from service.grammars.schema_places import Schema, all_schemas, path_of

CONTROLS = frozenset([*map(chr, range(0x20)), "\x7f"])
NAMED_CONTROLS = frozenset("\n\r\t\b\f")  # that JSON has a letter for
LARGE = 2**53  # whole numbers up to here are doubles
LOWER, UPPER = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")
NEGATED = -(2**63) + 513  # from here on, a number's double is above -2^63
MOST = Fraction(10**400)  # of a number that is walked, and of the parts of one


@dataclass(frozen=True, slots=True)
class Literals:
    """A part of a schema, with values that it must take and refuse, as JSON writes them."""

    path: str  # of the part and its keyword
    schema: Schema
    accepted: tuple[str, ...]
    refused: tuple[str, ...] = ()
    beyond: str = ""  # a number that ends the library, as it negates -2^63


def literals(schema: Schema) -> list[Literals]:
    """Literals of a schema, in its order."""
    return [each for steps, inner in all_schemas(schema) for each in _of_one(steps, inner)]


def has_numbered_controls(schema: Schema) -> bool:
    """Whether a literal has characters that JSON writes by their number only."""
    texts = (text for value in _values(schema) for text in _texts(value))
    return any(not CONTROLS.isdisjoint(text) and _is_numbered(text) for text in texts)


def has_controls_in_names(schema: Schema) -> bool:
    """Whether a property's name has control characters, which may be written in two ways."""
    names = [name for _, each in all_schemas(schema) for name in each.get("properties") or ()]
    for _, each in all_schemas(schema):
        required = each.get("required")
        names += required if isinstance(required, list) else ()
    return any(isinstance(name, str) and not CONTROLS.isdisjoint(name) for name in names)


def written(value: object) -> str:
    """A value as the compiled schema writes it: numbers in full, U+007F by its number."""
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        parts = (f"{written(str(name))}: {written(inner)}" for name, inner in value.items())
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(written, value)) + "]"
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f") if isinstance(value, str) else text


def _of_one(steps: tuple[str, ...], schema: Schema) -> Iterator[Literals]:
    if "const" in schema:
        const = schema["const"]
        path = path_of((*steps, "const"))
        yield Literals(path, {"const": const}, (written(const),), beyond=_beyond(const))
    values = schema.get("enum")
    if isinstance(values, list) and values:
        texts = tuple(map(written, values))
        yield Literals(path_of((*steps, "enum")), {"enum": values}, texts, beyond=_beyond(values))
    bounds = kept_bounds(schema)
    if bounds and all(_is_number(each) or isinstance(each, bool) for each in bounds.values()):
        yield from _of_bounds(steps, schema, bounds)


def _of_bounds(
    steps: tuple[str, ...], schema: Schema, bounds: Mapping[str, Any]
) -> Iterator[Literals]:
    kinds = schema.get("type", "number")
    named = [kinds] if isinstance(kinds, str) else kinds
    limits = _Limits.of(bounds)
    if limits is None:
        return
    for kind in named if isinstance(named, list) else ():
        if kind not in ("integer", "number"):
            continue
        low, high = limits.whole if kind == "integer" else limits.any
        for (accepted, refused), names in ((low, LOWER), (high, UPPER)):
            if accepted:
                keyword = next(name for name in names if name in bounds)
                part = {"type": kind, **bounds}
                is_beyond = kind == "integer" and limits.high is not None and limits.high < NEGATED
                yield Literals(
                    path_of((*steps, keyword)),
                    part,
                    accepted,
                    refused,
                    str(limits.high) if is_beyond else "",
                )


Texts = tuple[str, ...]
_NOTHING: tuple[Texts, Texts] = (), ()


@dataclass(frozen=True, slots=True)
class _Limits:
    """The bounds of numbers, each with whether it is itself left out."""

    low: Fraction | None
    is_above: bool
    high: Fraction | None
    is_below: bool

    @classmethod
    def of(cls, bounds: Mapping[str, Any]) -> "_Limits | None":
        low = _strictest(bounds, "minimum", "exclusiveMinimum", max)
        high = _strictest(bounds, "maximum", "exclusiveMaximum", min)
        if any(each is not None and not _is_short(each[0]) for each in (low, high)):
            return None
        return cls(*(low or (None, False)), *(high or (None, False)))

    @property
    def whole(self) -> tuple[tuple[Texts, Texts], tuple[Texts, Texts]]:
        """The least and the greatest whole number, each with the one right behind it."""
        least = greatest = None
        if self.low is not None:
            least = floor(self.low) + 1 if self.is_above else ceil(self.low)
        if self.high is not None:
            greatest = ceil(self.high) - 1 if self.is_below else floor(self.high)
        if least is not None and greatest is not None and least > greatest:
            return _NOTHING, _NOTHING
        return (
            _NOTHING if least is None else ((str(least),), (str(least - 1),)),
            _NOTHING if greatest is None else ((str(greatest),), (str(greatest + 1),)),
        )

    @property
    def any(self) -> tuple[tuple[Texts, Texts], tuple[Texts, Texts]]:
        """Each bound or, where it is left out and large, what is right within; and what is not."""
        if self.low is not None and self.high is not None and self.low > self.high:
            return _NOTHING, _NOTHING
        return _around(self.low, self.is_above, -1), _around(self.high, self.is_below, 1)


def _around(bound: Fraction | None, is_out: bool, step: int) -> tuple[Texts, Texts]:
    if bound is None:
        return _NOTHING
    behind = (_decimal(bound + step),) if abs(bound) >= LARGE else ()
    if not is_out:
        return (_decimal(bound),), behind
    return ((_decimal(bound - step),), (_decimal(bound), *behind)) if behind else _NOTHING


def _strictest(
    bounds: Mapping[str, Any],
    own: str,
    exclusive: str,
    choose: Callable[[Iterable[Fraction]], Fraction],
) -> tuple[Fraction, bool] | None:
    value, limit = bounds.get(own), bounds.get(exclusive)
    if limit is True:  # as draft 4 has it
        limit = value
    found = {each: _fraction(each) for each in (value, limit) if _is_number(each)}
    if not found:
        return None
    bound = choose(found.values())
    return bound, _is_number(limit) and _fraction(limit) == bound


def _fraction(number: float) -> Fraction:
    return Fraction(str(number))


def _is_short(number: Fraction) -> bool:
    """Whether its digits can be walked."""
    return abs(number) < MOST and Fraction(number.denominator) < MOST


def _decimal(number: Fraction) -> str:
    """The digits of a number that has finitely many."""
    digits = 0
    while (number * 10**digits).denominator > 1:
        digits += 1
    whole = str(abs(int(number * 10**digits))).rjust(digits + 1, "0")
    sign = "-" if number < 0 else ""
    return sign + (f"{whole[:-digits]}.{whole[-digits:]}" if digits else whole)


def _number(value: float) -> str:
    """The shortest digits of a double, without an exponent."""
    if not isfinite(value):
        return json.dumps(value)
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or bool(isfinite(value))


def _beyond(value: object) -> str:
    """A whole number in a value whose double is -2^63, or nothing."""
    if isinstance(value, int):
        return str(value) if -(2**63) <= value < NEGATED else ""
    inner = value.values() if isinstance(value, Mapping) else value
    if isinstance(inner, str) or not isinstance(inner, Iterable):
        return ""
    return next(filter(None, map(_beyond, inner)), "")


def _is_numbered(text: str) -> bool:
    return any(character in CONTROLS - NAMED_CONTROLS for character in text)


def _values(schema: Schema) -> Iterator[object]:
    for _, each in all_schemas(schema):
        if "const" in each:
            yield each["const"]
        if isinstance(values := each.get("enum"), list):
            yield from values


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():  # names are written in one way
            yield from _texts(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)
