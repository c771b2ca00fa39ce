"""Whole numbers of JSON bodies: 5, and 5.0 as some languages write it. Pure."""

from typing import Any, ClassVar


class Whole(int):
    """A whole number, with or without a fraction of zero."""

    least: ClassVar[int | None] = None
    most: ClassVar[int | None] = None


class Count(Whole):
    """A number of things, one or more."""

    least, most = 1, 2**31 - 1


def decode_number(kind: type, value: object) -> Whole:  # msgspec's hook for our own types
    """The number of one of these types. Raises what msgspec makes its errors of."""
    if not issubclass(kind, Whole):
        raise NotImplementedError
    if not isinstance(value, int | float) or isinstance(value, bool) or value % 1:  # nor infinite
        raise TypeError(f"Expected `int`, got `{_NAMES.get(type(value), type(value).__name__)}`")
    number = int(value)
    if kind.least is not None and number < kind.least:
        raise ValueError(f"Expected `int` >= {kind.least}")
    if kind.most is not None and number > kind.most:
        raise ValueError(f"Expected `int` <= {kind.most}")
    return kind(number)


def number_schema(kind: type) -> dict[str, Any]:
    """The JSON schema of one of these types."""
    if not issubclass(kind, Whole):
        raise NotImplementedError
    bounds = {"minimum": kind.least, "maximum": kind.most}
    return {"type": "integer"} | {name: end for name, end in bounds.items() if end is not None}


_NAMES = {dict: "object", list: "array", type(None): "null"}
