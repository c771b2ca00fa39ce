"""JSON Schemas of protobuf messages, in the form in which the typed API writes and reads them.

Pure: no socket, thread or clock.
"""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

Schema = dict[str, Any]
_KINDS = FieldDescriptor
_UNSIGNED = {_KINDS.TYPE_UINT32: 2**32 - 1, _KINDS.TYPE_UINT64: 2**64 - 1}
_SIGNED = {_KINDS.TYPE_INT32: 2**31, _KINDS.TYPE_INT64: 2**63}


def schema_of(message: Descriptor, reference: str) -> Schema:
    """The schema of a message; `reference` has the address of another by its name."""
    properties = {field.name: _field(field, reference) for field in message.fields}
    return {"title": message.name, "type": "object", "properties": properties}


def messages_in(kind: type[Message]) -> Iterator[Descriptor]:
    """A message and those in it, each once; maps are no messages of their own."""
    outer: Any = kind.DESCRIPTOR
    known, waiting = {outer.full_name}, [outer]
    while waiting:
        current = waiting.pop()
        if not current.GetOptions().map_entry:
            yield current
        for field in current.fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in known:
                known.add(inner.full_name)
                waiting.append(inner)


def _field(field: FieldDescriptor, reference: str) -> Schema:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        values = _value(inner.fields_by_name["value"], reference)
        return {"type": "object", "additionalProperties": values}
    value = _value(field, reference)
    return {"type": "array", "items": value} if field.is_repeated else value


def _value(field: FieldDescriptor, reference: str) -> Schema:
    kind = field.type
    if field.message_type is not None:
        return {"$ref": reference.format(name=field.message_type.name)}
    if kind == _KINDS.TYPE_ENUM:
        return {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    if kind == _KINDS.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    if kind == _KINDS.TYPE_BOOL:
        return {"type": "boolean"}
    if kind in (_KINDS.TYPE_FLOAT, _KINDS.TYPE_DOUBLE):
        return {"type": "number"}
    if kind in _UNSIGNED:
        return {"type": "integer", "minimum": 0, "maximum": _UNSIGNED[kind]}
    if kind in _SIGNED:
        return {"type": "integer", "minimum": -_SIGNED[kind], "maximum": _SIGNED[kind] - 1}
    assert kind == _KINDS.TYPE_STRING, f"{field.full_name} is of no kind that is known here"
    return {"type": "string"}
