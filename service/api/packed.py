"""Rows of float32 in messages, copied as they are: a message's own list makes an object of each.

A repeated float is written as its number, its size and its values in little-endian float32, one
after the other, so that a row of NumPy's is a message's bytes but for the beginning. See
https://protobuf.dev/programming-guides/encoding/#packed
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from service.api.wire import bytes_prefix
from service.serving.tasks.task import Fields

VALUES = "values"


def writer_of(kind: Callable[..., Message], rows: FieldDescriptor | None) -> Callable[..., Message]:
    """A function from fields to a message of a kind, whose `rows` have `values` as an array."""
    inner = rows.message_type.fields_by_name.get(VALUES) if rows and rows.message_type else None
    if rows is None or inner is None or inner.type != FieldDescriptor.TYPE_FLOAT:
        return lambda fields: kind(**fields)
    name, number = rows.name, inner.number

    def write(fields: Fields) -> Message:
        message = kind(**{key: value for key, value in fields.items() if key != name})
        add: Callable[..., Message] = getattr(message, name).add
        for row in fields[name]:
            values = row.get(VALUES)
            if isinstance(values, np.ndarray):
                rest = {key: value for key, value in row.items() if key != VALUES}
                add(**rest).MergeFromString(packed(number, values))
            else:
                add(**row)
        return message

    return write


def packed(number: int, values: np.ndarray) -> bytes:
    """The bytes of a message that has values in the field of that number, and nothing else."""
    raw = values.astype("<f4", copy=False).tobytes()
    return bytes_prefix(number, len(raw)) + raw


def values_of(message: Any) -> np.ndarray:  # noqa: ANN401 - one with a field of floats
    """The field `values` of a message, float32."""
    values: Any = message.values
    number = message.DESCRIPTOR.fields_by_name[VALUES].number
    prefix = bytes_prefix(number, 4 * len(values))
    raw = message.SerializeToString()
    if raw.startswith(prefix):  # as protobuf writes it, which it need not
        return np.frombuffer(raw, "<f4", len(values), len(prefix))
    return np.array(values, "<f4")
