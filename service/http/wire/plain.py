"""Protobuf messages as JSON values: names as in the protocol's files, 64-bit integers as numbers.

protobuf's own JSON writes 64-bit integers as strings and can leave out defaults; clients of Triton
read both as Triton writes them. It takes ten times as long for an embedding, too. Pure: no socket,
thread or clock.
"""

import base64
import struct
from collections.abc import Iterable
from functools import cache
from math import isfinite
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

_FLOAT = struct.Struct("<f")
_KINDS = FieldDescriptor


def plain(message: Message, *, has_defaults: bool = True) -> dict[str, Any]:
    """The fields that are set; with defaults, all but absent messages and optional values."""
    values_of: dict[str, Any] = {}
    for name, field, kind in _fields(message.DESCRIPTOR):
        if kind == "one":
            if field.has_presence and not message.HasField(name):
                continue
            value = getattr(message, name)
            if not has_defaults and not field.has_presence and value == field.default_value:
                continue
            values_of[name] = _value(field, value, has_defaults)
            continue
        values = getattr(message, name)
        if not values and not has_defaults:
            continue
        if kind == "map":
            inner = field.message_type.fields_by_name["value"]
            values_of[name] = {
                str(key): _value(inner, values[key], has_defaults) for key in sorted(values)
            }
        else:
            values_of[name] = _values(field, values, has_defaults)
    return values_of


@cache
def _fields(descriptor: Descriptor) -> tuple[tuple[str, FieldDescriptor, str], ...]:
    def kind(field: FieldDescriptor) -> str:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return "map"
        return "many" if field.is_repeated else "one"

    return tuple((field.name, field, kind(field)) for field in descriptor.fields)


def _values(field: FieldDescriptor, values: Iterable[Any], has_defaults: bool) -> list[Any]:
    if field.type == _KINDS.TYPE_FLOAT:
        listed = list(values)
        if all(map(isfinite, listed)):
            return [float(f"{value:.9g}") for value in listed]
    elif field.message_type is None and field.type not in (_KINDS.TYPE_ENUM, _KINDS.TYPE_BYTES):
        return list(values)
    return [_value(field, value, has_defaults) for value in values]


def _value(field: FieldDescriptor, value: Any, has_defaults: bool) -> Any:
    if field.message_type is not None:
        return plain(value, has_defaults=has_defaults)
    if field.type == _KINDS.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.type == _KINDS.TYPE_BYTES:
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        if not isfinite(value):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        return _shortest(value) if field.type == _KINDS.TYPE_FLOAT else value
    return value


def _shortest(value: float) -> float:
    """The number with the fewest digits that is the same in 32 bits."""
    raw = _FLOAT.pack(value)
    for digits in (6, 7, 8):
        rounded = float(f"{value:.{digits}g}")
        if _FLOAT.pack(rounded) == raw:
            return rounded
    return float(f"{value:.9g}")
