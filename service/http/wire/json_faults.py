"""Faults of a body of JSON, in plain words with the path of the field.

msgspec and protobuf say it in words of their own, of their types and of Python's. Pure.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor

MAX_SHOWN_CHARACTERS = 64  # of a wrong name or value
MAX_LISTED = 40  # names of fields
_MISMATCH = re.compile(r"Expected `([^`]*)`(.*), got `([^`]*)`")
_OUTSIDE = re.compile(r"Expected `([^`]*)` (.*)")
_UNKNOWN = re.compile(r"Invalid enum value (.*)")
_MISSING = re.compile(r"Object missing required field `([^`]*)`")
_KINDS = {
    "object": "an object",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and the path of its field, where it is one."""

    text: str
    field: str | None = None


def of_record(error: msgspec.ValidationError, of: str = "", kind: object = None) -> Fault:
    """Fault of JSON that should have been a record: a body, or the field `of` it.

    With the record's `kind`, an unknown value is answered with the known ones.
    """
    what, _, path = str(error).partition(" - at `")
    inner = path.rstrip("`").removeprefix("key in ").removeprefix("$").lstrip(".")
    joined = f"{of}{inner}" if inner.startswith("[") else ".".join(filter(None, (of, inner)))
    field = joined or None
    if (missing := _MISSING.fullmatch(what)) is not None:
        name = f"{field}.{missing[1]}" if field else missing[1]
        return Fault(f"{name} is missing", name)
    subject = field or "the body"
    if (found := _MISMATCH.fullmatch(what)) is not None:
        expected = _either([_kind(name) for name in found[1].split(" | ")])
        return Fault(f"{subject} is {_kind(found[3])}, expected {expected}{found[2]}", field)
    if (outside := _OUTSIDE.fullmatch(what)) is not None:
        bound = outside[2].replace(">=", "of at least").replace("<=", "of at most")
        return Fault(f"{subject} is out of range, expected {_kind(outside[1])} {bound}", field)
    if (unknown := _UNKNOWN.fullmatch(what)) is not None:
        choices = _listed(_choices(kind, field or ""))
        expected = f", expected one of {choices}" if choices else ", which is none of its values"
        return Fault(f"{subject} is {unknown[1][:MAX_SHOWN_CHARACTERS]}{expected}", field)
    return Fault(f"{subject}: {what[:1].lower()}{what[1:]}", field)


def _choices(kind: object, field: str) -> list[str]:
    """The values of a record's field that has a `Literal` of texts; none for other fields."""
    annotation = get_type_hints(kind).get(field) if isinstance(kind, type) else None
    parts = (annotation, *get_args(annotation))
    return [value for part in parts if get_origin(part) is Literal for value in get_args(part)]


def _kind(name: str) -> str:
    return _KINDS.get(name, name)


def _either(kinds: list[str]) -> str:
    *first, last = (each for kind in kinds for each in kind.split(" or "))
    return f"{', '.join(first)} or {last}" if first else last


def of_message(body: bytes | bytearray, message: Descriptor) -> Fault | None:
    """Fault of JSON that should have been a message; None where nothing is found."""
    try:
        value = json.loads(body, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        return Fault(f"the body is not JSON: {error.msg.lower()} in {place}")
    except UnicodeDecodeError as error:
        return Fault(f"the body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}")
    except _Duplicate as error:
        return Fault(f"{_shown(error.name)} is given twice, expected once", error.name)
    except (ValueError, RecursionError):
        return None
    return _of_object(value, message, "")


class _Duplicate(Exception):  # noqa: N818 - it is caught in here
    """An object has a name twice."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise _Duplicate(name)
        values[name] = value
    return values


def _of_object(value: object, message: Descriptor, path: str) -> Fault | None:  # any JSON
    if not isinstance(value, dict):
        return _mismatch(value, "an object", path)
    fields = {field.name: field for field in message.fields}
    fields |= {field.json_name: field for field in message.fields}
    chosen: dict[str, str] = {}
    for name, each in value.items():
        inner = f"{path}.{name}" if path else name
        field = fields.get(name)
        if field is None:
            names = _listed(field.name for field in message.fields)
            return Fault(f"{_shown(inner)} is not known, expected one of {names}", inner)
        if each is None:
            continue
        group = field.containing_oneof
        if group is not None and len(group.fields) > 1:
            if group.name in chosen:
                text = f"{chosen[group.name]} and {inner} are given, expected one of them"
                return Fault(text, inner)
            chosen[group.name] = inner
        if (fault := _of_field(each, field, inner)) is not None:
            return fault
    return None


def _of_field(value: object, field: FieldDescriptor, path: str) -> Fault | None:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        if not isinstance(value, dict):
            return _mismatch(value, "an object", path)
        for key, each in value.items():
            if (fault := _of_key(key, entry.fields_by_name["key"], path)) is not None:
                return fault
            fault = _of_single(each, entry.fields_by_name["value"], f"{path}[{key}]")
            if fault is not None:
                return fault
        return None
    if not field.is_repeated:
        return _of_single(value, field, path)
    if not isinstance(value, list):
        return _mismatch(value, "a list", path)
    faults = (_of_single(each, field, f"{path}[{n}]") for n, each in enumerate(value))
    return next((fault for fault in faults if fault is not None), None)


def _of_key(key: str, field: FieldDescriptor, path: str) -> Fault | None:
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return None
    return _of_whole(key, field, path)


def _of_single(value: object, field: FieldDescriptor, path: str) -> Fault | None:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        return _of_object(value, field.message_type, path)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return None if isinstance(value, bool) else _mismatch(value, "true or false", path)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _of_text(value, field, path)
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return _of_number(value, path)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        names = [each.name for each in field.enum_type.values]
        if value in names or type(value) is int:
            return None
        return Fault(f"{path} is {told(value)}, expected one of {_listed(names)}", path)
    return _of_whole(value, field, path)


def _of_text(value: object, field: FieldDescriptor, path: str) -> Fault | None:
    if not isinstance(value, str):
        return _mismatch(value, "a text", path)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return Fault(f"{path} is a text that cannot be read, expected base64", path)
    if any("\ud800" <= character <= "\udfff" for character in value):
        return Fault(f"{path} has a half of a surrogate pair", path)
    return None


def _of_number(value: object, path: str) -> Fault | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return _mismatch(value, "a number", path)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return Fault(f"{path} is {told(value)}, expected a number", path)
    if number in (float("inf"), float("-inf")) and not isinstance(value, str):
        return Fault(f"{path} is too large for its field", path)
    return None


_BITS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _of_whole(value: object, field: FieldDescriptor, path: str) -> Fault | None:
    low, high = _BITS[field.cpp_type]
    expected = f"a whole number from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return _mismatch(value, expected, path)
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return Fault(f"{path} is {told(value)}, expected {expected}", path)
    if low <= number <= high and number == (value if not isinstance(value, str) else number):
        return None
    return Fault(f"{path} is {told(value)}, expected {expected}", path)


def _mismatch(value: object, expected: str, path: str) -> Fault:
    return Fault(f"{path or 'the body'} is {told(value)}, expected {expected}", path or None)


def told(value: object) -> str:
    """A wrong value: numbers and short texts themselves, of others the kind."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return f"the text {_shown(value)!r}"
    is_larger = isinstance(value, int) and abs(value) >= 2**64
    return "a larger number" if is_larger else str(value)


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(list(names)[:MAX_LISTED])
