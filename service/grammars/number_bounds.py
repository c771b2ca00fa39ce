"""Bounds of numbers in a JSON schema that the compiler does not keep to (llguidance 1.9).

It takes a whole number as an exclusive bound for an inclusive one where no other whole number is
within the bounds: 3 would be in 3 to 3.5, and -3 in -3.5 to -3.

Bounds meet where several schemas are for one value: through `allOf`, `anyOf`, `oneOf` and `$ref`,
and where two schemas for an object or an array each say something of the same property or item.
Values are followed from the outermost one inwards. Of each there is a conjunction: schemas that all
hold, and alternatives of which one holds. What the patterns of names say may hold or not. Pure.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any, TypeGuard
from urllib.parse import unquote

from service.errors import InvalidArgument, invalid_field

Schema = Mapping[str, Any]
MAX_VISITS = 10_000  # of schemas: 10 to 100 ms
MAX_PLACE = 100  # characters of a place in a message
OTHERS, REST = "*", "items"  # properties and items that are not listed


@dataclass(frozen=True, slots=True)
class _Range:
    """The numbers between two bounds, each with whether it is itself left out."""

    low: float = -inf
    is_above: bool = False
    high: float = inf
    is_below: bool = False

    @classmethod
    def of(cls, schema: Schema) -> "_Range":
        """The range that one schema states by itself."""
        low, is_above = _strictest(schema, "minimum", "exclusiveMinimum", 1)
        high, is_below = _strictest(schema, "maximum", "exclusiveMaximum", -1)
        return cls(low, is_above, high, is_below)

    def meet(self, other: "_Range") -> "_Range":
        low, is_above = max((self.low, self.is_above), (other.low, other.is_above))
        high, is_at = min((self.high, not self.is_below), (other.high, not other.is_below))
        return _Range(low, is_above, high, not is_at)

    @property
    def is_empty(self) -> bool:
        is_open = self.is_above or self.is_below
        return self.low > self.high or (self.low == self.high and is_open)

    @property
    def lost(self) -> float | None:
        """The exclusive bound that the compiler would take for an inclusive one."""
        low, high = self.low, self.high
        if self.is_above and low >= 0 and _is_whole(low) and high < low + 1:
            return low
        if self.is_below and high <= 0 and _is_whole(high) and low > high - 1:
            return high
        return None


@dataclass(frozen=True, slots=True)
class _Either:
    """Alternatives of which one holds; an empty one says nothing."""

    branches: tuple["_All", ...]


_All = tuple[Schema | _Either, ...]  # all of them hold, those of `allOf` and `$ref` among them
_ANY = _Range()


def check_bounds(schema: Schema, objects: Sequence[Schema]) -> None:
    """Raise `InvalidArgument` for bounds that are not kept to; `objects` are all in the schema."""
    if _has_near_bounds([_Range.of(each) for each in objects]):
        _Places(schema, objects).check()


def _has_near_bounds(ranges: Sequence[_Range]) -> bool:
    """Whether any two bounds in a schema would be lost if they met; of most, none would."""
    lows = sorted(each.low for each in ranges if each.low > -inf)
    highs = sorted(each.high for each in ranges if each.high < inf)
    minus_lows = [-low for low in reversed(lows)]
    above = (each.low for each in ranges if each.is_above and each.low >= 0)
    below = (-each.high for each in ranges if each.is_below and each.high <= 0)
    return any(
        index < len(others) and _is_whole(bound) and others[index] < bound + 1
        for bounds, others in ((above, highs), (below, minus_lows))
        for bound in bounds
        for index in [bisect_right(others, bound)]
    )


class _Places:
    """The values of a document, each with the schemas that are for it."""

    def __init__(self, root: Schema, objects: Sequence[Schema]) -> None:
        self._root, self._objects = root, objects
        self._num_visits = 0

    def check(self) -> None:
        waiting: list[tuple[_All, tuple[str, ...]]] = [(self._all_of([self._root]), ())]
        seen: set[object] = set()
        while waiting:
            schemas, place = waiting.pop()
            key = _key(schemas)
            if key in seen:
                continue
            seen.add(key)
            self._check_one(schemas, place)
            steps = dict.fromkeys(step for each in _leaves(schemas) for step in _steps(each))
            waiting += [(self._within(schemas, step), (*place, str(step))) for step in steps]

    def _check_one(self, schemas: _All, place: tuple[str, ...]) -> None:
        for numbers in self._ranges(schemas):
            if (bound := numbers.lost) is not None:
                at = f" at '{'.'.join(place)[:MAX_PLACE]}'" if place else ""
                raise _refused(
                    f"has numbers from {numbers.low} to {numbers.high} without {bound}{at}, which "
                    "is not kept to where no other whole number is among them: take a bound with "
                    "a fraction"
                )

    def _ranges(self, schemas: _All) -> set[_Range]:
        """The numbers that a value may be, by alternative; those without a number are left out."""
        ranges = {_ANY}
        for each in schemas:
            if isinstance(each, _Either):
                options = {one for branch in each.branches for one in self._ranges(branch)}
            else:
                options = {_Range.of(each)}
            self._count(len(ranges) * len(options))
            met = (numbers.meet(option) for numbers in ranges for option in options)
            ranges = {numbers for numbers in met if not numbers.is_empty}
        return ranges

    def _within(self, schemas: _All, step: "str | int") -> _All:
        """Schemas that hold for a property or an item of a value."""
        inner: list[Schema | _Either] = []
        for each in schemas:
            if isinstance(each, _Either):
                inner += _either([self._within(branch, step) for branch in each.branches])
                continue
            self._count(1)
            for schema, is_sure in _inner_schemas(each, step):
                said = self._all_of([schema])
                inner += said if is_sure else _either([said, ()])
        return _distinct(inner)

    def _all_of(self, schemas: Sequence[object], seen: frozenset[int] = frozenset()) -> _All:
        """Schemas, and all that hold with them."""
        found: list[Schema | _Either] = []
        waiting = list(schemas)
        while waiting:
            schema = waiting.pop()
            if not isinstance(schema, Mapping) or id(schema) in seen:
                continue
            self._count(1)
            seen |= {id(schema)}
            found.append(schema)
            waiting += _members(schema, "allOf")
            alternatives = [_members(schema, keyword) for keyword in ("anyOf", "oneOf")]
            targets = self._targets(schema.get("$ref"))
            if len(targets) == 1:
                waiting += targets
            else:
                alternatives.append(targets)
            for members in alternatives:
                found += _either([self._all_of([member], seen) for member in members])
        return _distinct(found)

    def _targets(self, reference: object) -> list[object]:
        """Targets of a `$ref`: one schema, but where parts of the document have an `$id`."""
        if not isinstance(reference, str):
            return []
        _, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            names = {"$anchor": fragment, "$id": f"#{fragment}", "id": f"#{fragment}"}
            return [
                each
                for each in self._objects
                if any(each.get(key) == name for key, name in names.items())
            ]
        found = (_pointed(resource, unquote(fragment)) for resource in self._resources)
        return [each for each in found if isinstance(each, Mapping)]

    @cached_property
    def _resources(self) -> list[Schema]:
        """The document, and its parts that a pointer may begin at."""
        parts = [each for each in self._objects if isinstance(each.get("$id", each.get("id")), str)]
        return [self._root, *(each for each in parts if each is not self._root)]

    def _count(self, number: int) -> None:
        self._num_visits += number
        if self._num_visits > MAX_VISITS:
            raise _refused(
                "has bounds of numbers that meet in too many ways to be compared: take bounds with "
                "a fraction"
            )


def _either(branches: Sequence[_All]) -> list[_Either]:
    """Alternatives, without those within alternatives; nothing where all say nothing."""
    flat: dict[object, _All] = {}
    for branch in branches:
        only = branch[0] if len(branch) == 1 else None
        for each in only.branches if isinstance(only, _Either) else (branch,):
            flat[_key(each)] = each
    return [_Either(tuple(flat.values()))] if any(flat.values()) else []


def _distinct(schemas: Sequence[Schema | _Either]) -> _All:
    return tuple({_key_of(each): each for each in schemas}.values())


def _key(schemas: _All) -> object:
    """Equal for equal schemas, whatever their order."""
    return frozenset(map(_key_of, schemas))


def _key_of(each: Schema | _Either) -> object:
    return frozenset(map(_key, each.branches)) if isinstance(each, _Either) else id(each)


def _leaves(schemas: _All) -> Iterator[Schema]:
    for each in schemas:
        if isinstance(each, _Either):
            for branch in each.branches:
                yield from _leaves(branch)
        else:
            yield each


def _steps(schema: Schema) -> Iterator[str | int]:
    """The properties and items that a schema says something of; `OTHERS` and `REST` of the rest."""
    yield from _named(schema, "properties")
    if schema.get("patternProperties") or isinstance(schema.get("additionalProperties"), Mapping):
        yield OTHERS
    prefix, rest = _items(schema)
    yield from range(len(prefix))
    if isinstance(rest, Mapping):
        yield REST


def _inner_schemas(schema: Schema, step: str | int) -> Iterator[tuple[object, bool]]:
    """Schemas of a property or an item, each with whether it is sure to hold."""
    prefix, rest = _items(schema)
    if isinstance(step, int):
        yield (prefix[step] if step < len(prefix) else rest), True
        return
    if step == REST:
        yield rest, True
    named, patterns = _named(schema, "properties"), _named(schema, "patternProperties")
    for inner in patterns.values():
        yield inner, False
    if step in named:
        yield named[step], True
    else:
        yield schema.get("additionalProperties"), not patterns


def _items(schema: Schema) -> tuple[Sequence[object], object]:
    """Schemas of the first items, and of those behind them."""
    prefix, items = schema.get("prefixItems"), schema.get("items")
    if isinstance(items, list | tuple):  # as drafts before 2020-12 have it
        return items, schema.get("additionalItems")
    return (prefix if isinstance(prefix, list | tuple) else ()), items


def _named(schema: Schema, keyword: str) -> Schema:
    value = schema.get(keyword)
    return value if isinstance(value, Mapping) else {}


def _members(schema: Schema, keyword: str) -> list[object]:
    value = schema.get(keyword)
    return list(value) if isinstance(value, list | tuple) else []


def _pointed(value: object, pointer: str) -> object:
    """Value that a JSON pointer leads to; None where it leads nowhere."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list | tuple) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value


def _strictest(schema: Schema, own: str, exclusive: str, sign: int) -> tuple[float, bool]:
    """The bound of a schema, and whether it is left out itself; `sign` is -1 of an upper one."""
    value, limit = schema.get(own), schema.get(exclusive)
    if limit is True:  # as draft 4 has it
        limit = value
    bounds = [(sign * each, False) for each in (value,) if _is_number(each)]
    bounds += [(sign * each, True) for each in (limit,) if _is_number(each)]
    bound, is_exclusive = max(bounds, default=(-inf, False))
    return sign * bound, is_exclusive


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(number: float) -> bool:
    return isinstance(number, int) or number.is_integer()


def _refused(reason: str) -> InvalidArgument:
    return invalid_field("json_schema", reason)
