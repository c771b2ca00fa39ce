"""Messages of protobuf from bodies of JSON and to them: `plain.py` has the form of the latter."""

from typing import Any, TypeVar

import msgspec
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import Message

from service.http.body import Body
from service.http.status import HttpError
from service.http.wire.json_faults import Fault, of_message
from service.http.wire.plain import plain

M = TypeVar("M", bound=Message)
LONGEST_SPACE = 2**10  # before the object, in most bodies
MAX_DEPTH = 32  # of messages in each other: ours have five


def parse_json(body: Body, message: M) -> M:
    """The message with the fields of a checked JSON object; nothing is one without fields.

    Raises `HttpError`.
    """
    beginning = body[:LONGEST_SPACE].lstrip()
    if not beginning and not body.strip():
        return message
    if (beginning or body.lstrip())[:1] != b"{":
        raise HttpError(400, "the body is JSON, but not an object", code="invalid_json")
    try:
        return Parse(bytes(body), message, max_recursion_depth=MAX_DEPTH)
    except (ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        descriptor: Any = message.DESCRIPTOR
        fault = of_message(body, descriptor) or Fault(f"the body cannot be read: {error}")
        raise HttpError(400, fault.text, code="invalid_json", param=fault.field) from error


def to_json(message: Message, *, has_defaults: bool = True) -> bytes:
    return msgspec.json.encode(plain(message, has_defaults=has_defaults))
