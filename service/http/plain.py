"""Protobuf messages as JSON values: names as in the protocol's files, 64-bit integers as numbers.

protobuf's own JSON writes 64-bit integers as strings and can leave out defaults; clients of Triton
read both as Triton writes them. Pure: no socket, thread or clock.
"""

import base64
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def plain(message: Message) -> dict[str, Any]:
    """The fields by name, with defaults; of fields that can be absent only those that are set."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if not field.is_repeated:
            values[field.name] = _single(field, value)
        elif _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            values[field.name] = {str(key): _single(entry, value[key]) for key in value}
        else:
            values[field.name] = [_single(field, each) for each in value]
    return values


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _single(field: FieldDescriptor, value: Any) -> Any:  # noqa: ANN401 - as the field's type says
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode()
    return value
