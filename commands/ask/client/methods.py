"""The methods of the typed API as a client has them: records on this side, messages on the other.

Each is made when it is first used, by the codec that the server has, too.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from attendant.v1 import features_pb2, generation_pb2, reading_pb2, text_pb2, vision_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from service.api.codec import reader, writer
from service.api.generation_messages import own_fields
from service.calls.methods import RECORDS

FILES = (text_pb2, reading_pb2, features_pb2, vision_pb2, generation_pb2)
ROW = "TokenVector"  # a message of numbers alone, as those of other answers are


class Method(NamedTuple):
    """A method's path, and both ways between its records and messages."""

    path: str
    response: type[Message]
    write: Callable[[Any], Message]
    read: Callable[[Any], Any]


@cache
def method_named(name: str) -> Method:
    """The method of that name."""
    method = next(each for each in _methods() if each.name == name)
    request, response = map(GetMessageClass, (method.input_type, method.output_type))
    call, answer = RECORDS[name]
    path = f"/{method.containing_service.full_name}/{name}"
    write = writer(request, call, own_fields(method.input_type))
    return Method(path, response, write, reader(response, answer))


def message_of(record: Any) -> Message:
    """The message of a request, of an answer or of a part of one."""
    kind: Any = type(record)
    message: Message = _writer_of(kind)(record)
    return message


@cache
def _writer_of(record: Any) -> Callable[[Any], Any]:
    kinds: dict[type, Any] = {}
    for method in _methods():
        call, answer = RECORDS[method.name]
        kinds |= {call: method.input_type, answer: method.output_type}
    kind = kinds.get(record) or _part_named(ROW if record.__name__ == "Row" else record.__name__)
    return writer(GetMessageClass(kind), record, own_fields(kind))


def _part_named(name: str) -> Any:
    return next(
        messages[name]
        for file in FILES
        if name in (messages := file.DESCRIPTOR.message_types_by_name)
    )


def _methods() -> Iterator[MethodDescriptor]:
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            yield from service.methods
