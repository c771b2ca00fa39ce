"""Long messages: inflated and parsed without keeping the interpreter from other threads for long.

protobuf copies every field of a message while it holds the interpreter: 240 MB for a tenth of a
second, and once more when the field is read. So the raw tensors of a long `ModelInfer` message
stay where they came, and what is parsed is the rest. Works on any thread.
"""

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from service.rpc.wire import GroupError, cut_out

_KIND = service_pb2.ModelInferRequest
_RAW = _KIND.DESCRIPTOR.fields_by_name["raw_input_contents"].number


class LongInferRequest:
    """A `ModelInferRequest`, its raw contents views of the message as it came."""

    DESCRIPTOR = _KIND.DESCRIPTOR
    __slots__ = ("_rest", "raw_input_contents")

    def __init__(self, rest: object, raw_input_contents: Sequence[memoryview]) -> None:
        self._rest = rest
        self.raw_input_contents = raw_input_contents

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the fields of the message
        return getattr(self._rest, name)


def parse_long(parse: Callable[[bytes], Any], message: bytes | bytearray) -> Any:  # noqa: ANN401
    """What `parse` of a class of messages gives; raises `DecodeError`."""
    if getattr(parse, "__self__", None) is not _KIND:
        return parse(bytes(message))
    try:
        rest, contents = cut_out(memoryview(message).toreadonly(), _RAW)
    except IndexError as error:
        raise DecodeError("the message is cut short") from error
    except GroupError:
        return parse(bytes(message))
    return LongInferRequest(parse(rest), contents)
