"""Answers of the typed API as plain values for JSON, in the names and forms of its messages.

Protobuf's own mapping writes 64-bit numbers as texts, which readers of JSON do not expect of a
count. Every field is there, also if it is 0 or empty; a listed model has only its task's fields.
"""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict

WIDE = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
# Fields that say something of every model, also where they are 0 or empty.
OF_ALL_MODELS = ("name", "version", "task", "max_batch_size")


def json_fields(record: Any) -> dict[str, Any]:
    """The fields of a record by their names."""
    from commands.ask.client.methods import message_of  # all messages

    message = message_of(record)
    values = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _plain(message.DESCRIPTOR, values)


def _plain(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    is_model = kind.full_name == "attendant.v1.Model"
    return {
        name: _value(kind.fields_by_name[name], value)
        for name, value in values.items()
        if value or not is_model or name in OF_ALL_MODELS
    }


def _value(field: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(field, each) for each in value]
    if field.message_type is not None and isinstance(value, dict):
        return _plain(field.message_type, value)
    return int(value) if field.cpp_type in WIDE else value
