"""Reads and writes the messages of calls: within their bounds, and long ones on a thread.

A message that takes its time to inflate or count is read on another thread; parsing it holds the
interpreter wherever that happens. So is an answer with large tensors written.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from service.api.admission import Admission, message_bytes
from service.api.long_message import LongInferResponse, parse_long
from service.api.wire import (
    MAX_INFLATION,
    PACKED_BYTES,
    Inner,
    count_parts,
    inflated,
    is_compressed,
)
from service.errors import InvalidArgument, forget_frames
from service.rpc.status import Context

READ_AT_ONCE_BYTES = 2**18  # of a message, inflated; 130,000 parts at most take 0.3 s to count
Read: TypeAlias = Callable[[bytes], tuple[object, int]]  # gives the message's size too
Write: TypeAlias = Callable[[object], bytes]


@dataclass(frozen=True, slots=True)
class Unread:
    """A message as it came, which its call has yet to read."""

    raw: bytes

    @staticmethod
    def is_better_for(message: bytes) -> bool:
        """Whether to read a message later, on a thread, as it may be long."""
        most = len(message) * MAX_INFLATION if is_compressed(message) else len(message)
        return most > READ_AT_ONCE_BYTES


def read_message(
    parse: Callable[[bytes], object], inner: Inner, max_bytes: int, max_parts: int, message: bytes
) -> tuple[object, int]:
    """A message, and how many bytes it has once it is inflated."""
    is_long = Unread.is_better_for(message)
    content = inflated(message, max_bytes)
    if len(content) > max_bytes:
        raise InvalidArgument(f"the message has more than {max_bytes} bytes once it is inflated")
    if count_parts(content, inner, max_parts) > max_parts:
        raise InvalidArgument(
            f"the message has more than {max_parts} fields, counting those of the messages in it, "
            f"and {PACKED_BYTES} bytes of typed numbers as one: send large tensors raw"
        )
    found = parse_long(parse, content) if is_long else parse(bytes(content))
    return found, len(content)


def read_noting(read: Read, message: bytes) -> object:
    """The message; its size is noted for its call."""
    found, num_bytes = read(message)
    message_bytes.set(num_bytes)
    return found


def write_holding(write: Write, hold: Callable[[int], None], message: object) -> bytes:
    """An answer's bytes, which are held from now on."""
    if isinstance(message, bytes):
        return message  # held since it was written
    raw = write(message)
    hold(len(raw))
    return raw


def write_unless_bytes(write: Write, message: object) -> bytes:
    """An answer's bytes; a long one is bytes already."""
    return message if isinstance(message, bytes) else write(message)


def read_unless_long(read: Read, message: bytes) -> object:
    """The message, or why it is none: raised here, gRPC would make it UNKNOWN with a traceback."""
    if Unread.is_better_for(message):
        return Unread(message)
    try:
        return read_noting(read, message)
    except (DecodeError, InvalidArgument) as error:
        forget_frames(error)
        return error


@dataclass(frozen=True, slots=True)
class LongReader:
    """Reads the long messages of one method on a thread."""

    read: Read
    admission: Admission
    thread: ThreadPoolExecutor

    async def finish(self, request: object) -> object:
        """A request as the method takes it; an error in its place where it is unreadable."""
        if not isinstance(request, Unread):
            return request
        message_bytes.set(len(request.raw))
        reading = asyncio.get_running_loop().run_in_executor(self.thread, self.read, request.raw)
        self.admission.hold_until(reading)
        try:
            found, num_bytes = await reading
        except (DecodeError, InvalidArgument) as error:
            forget_frames(error)
            return error
        message_bytes.set(num_bytes)
        return found


@dataclass(frozen=True, slots=True)
class LongWriter:
    """Writes the long answers of all methods on a thread."""

    admission: Admission
    thread: ThreadPoolExecutor

    async def finish(self, response: object) -> object:
        """A response as gRPC takes it: a long one as bytes, which are held from now on."""
        if not isinstance(response, LongInferResponse):
            return response
        if not response.is_streamed:
            self.admission.hold(response.ByteSize())
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.thread, response.SerializeToString)


class LongContext:
    """The context of a stream, which gives its messages whole, or raises what is wrong with one."""

    def __init__(self, context: Context, reader: LongReader, writer: LongWriter) -> None:
        self._context = context
        self._reader = reader
        self._writer = writer

    async def write(self, message: object) -> None:
        await self._context.write(await self._writer.finish(message))

    async def read(self) -> object:
        request = await self._reader.finish(await self._context.read())
        if isinstance(request, DecodeError | InvalidArgument):
            raise request
        return request

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - all else is the context's own
        return getattr(self._context, name)
