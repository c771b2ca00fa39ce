"""Long messages: read and written without keeping the interpreter from other threads for long.

protobuf copies every field of a message while it holds the interpreter: 240 MB for a tenth of a
second, and once more when the field is read. So the raw tensors of a long `ModelInfer` message
stay where they are, and only the rest is parsed. Those of a long answer are copied once, from
the model's arrays to gRPC's buffer: protobuf would copy them five times, one of
them to compute the message's size. Works on any thread.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2

from service.api.wire import GroupError, bytes_prefix, cut_out

_KIND = service_pb2.ModelInferRequest
_RAW = _KIND.DESCRIPTOR.fields_by_name["raw_input_contents"].number
_ANSWER = service_pb2.ModelInferResponse
_RAW_OUTPUT = _ANSWER.DESCRIPTOR.fields_by_name["raw_output_contents"].number
_STREAM = service_pb2.ModelStreamInferResponse
_STREAMED = _STREAM.DESCRIPTOR.fields_by_name["infer_response"].number


# Raw; or the strings of a BYTES tensor.
Content: TypeAlias = memoryview | bytes | list[bytes]


class LongInferRequest:
    """A `ModelInferRequest`, its raw contents views of the message as it came."""

    DESCRIPTOR = _KIND.DESCRIPTOR
    __slots__ = ("_rest", "raw_input_contents")

    def __init__(self, rest: object, raw_input_contents: Sequence[Content]) -> None:
        self._rest = rest
        self.raw_input_contents = raw_input_contents

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rest, name)


def parse_long(parse: Callable[[bytes], Any], message: bytes | bytearray) -> Any:
    """The parsed message of a class. Raises `DecodeError`."""
    if getattr(parse, "__self__", None) is not _KIND:
        return parse(bytes(message))
    try:
        rest, contents = cut_out(memoryview(message).toreadonly(), _RAW)
    except IndexError as error:
        raise DecodeError("the message is cut short") from error
    except GroupError:
        return parse(bytes(message))
    return LongInferRequest(parse(rest), contents)


@dataclass(frozen=True, slots=True, eq=False)
class LongInferResponse:
    """A `ModelInferResponse`, its raw contents arrays of bytes; or that of a stream."""

    head: Any  # the message without them
    raw_output_contents: Sequence[np.ndarray]
    is_streamed: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.head, name)

    def streamed(self) -> "LongInferResponse":
        """The answer inside a message of a stream."""
        return replace(self, is_streamed=True)

    def ByteSize(self) -> int:
        return sum([len(part) for part in self._parts()])

    def SerializeToString(self) -> bytes:
        """The message, copied by NumPy, which lets other threads run meanwhile."""
        parts = list(self._parts())
        stream = io.BytesIO(bytes(sum(map(len, parts))))
        with stream.getbuffer() as buffer:
            whole, position = np.frombuffer(buffer, np.uint8), 0
            for part in parts:
                whole[position : position + len(part)] = part
                position += len(part)
            del whole
        return stream.getvalue()  # not copied

    def _parts(self) -> Iterator[np.ndarray]:
        fields: list[np.ndarray] = [_array(self.head.SerializeToString())]
        for content in self.raw_output_contents:
            fields += (_array(bytes_prefix(_RAW_OUTPUT, len(content))), content)
        if self.is_streamed:
            yield _array(bytes_prefix(_STREAMED, sum(map(len, fields))))
        yield from fields


def _array(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, np.uint8)
