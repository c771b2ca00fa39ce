"""A server of made-up models, and what it answers to a request, without what differs each time.

Ids, times and durations are blank. Numbers of more digits are written with four of them, since
processors differ in the last bits of an exponential: in JSON as text, in messages as values. The
rest is kept to the byte.
"""

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.fakes.chats import write_chat_model
from tests.fakes.every_task import SETTINGS, every_session, response_type, write_every_model
from tests.fakes.http import port_of, request
from tests.fakes.retrieval import NUM_TERMS, terms_manifest, three_manifest, three_session
from tests.fakes.serving import Served, serving, within_patience
from tests.fakes.sessions import FakeSessions, text_session, write_model

DIGITS = 4  # of a number that has more
BLANK = (
    (re.compile(rb'("(?:id|created)": ?)("[a-z]+-[0-9a-f]{16,}"|\d{9,})'), rb"\1null"),
    (re.compile(rb'("\w*[sS]econds": ?)[-\d.e]+'), rb"\g<1>0"),
    (re.compile(rb"\bcall_[0-9a-f]{8,}"), b"call"),
)
NUMBER = re.compile(rb"(?<![\w.])-?\d+\.\d{5,}(?:e-?\d+)?(?![\w.])")


def _rounded(found: re.Match[bytes]) -> bytes:
    return f"{float(found[0]):.{DIGITS}g}".encode()


@asynccontextmanager
async def corpus_server(repository: Path) -> AsyncIterator[Served]:
    """A model of every task, embedders with several kinds of answer, and one for chats."""
    write_every_model(repository)
    write_chat_model(repository)
    write_model(repository, "three", three_manifest())
    write_model(repository, "terms", terms_manifest())
    more = {"three": three_session, "terms": lambda: text_session("term_weights", NUM_TERMS)}
    sessions = FakeSessions(**every_session()._makers, **more)
    async with serving(repository, sessions, **SETTINGS, http_port=0) as served:
        yield served


class Port:
    """One connection to a server's HTTP port, opened again after each answer that ends it."""

    def __init__(self, served: Served) -> None:
        self._port = port_of(served)
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str, body: bytes) -> dict[str, Any]:
        """Status, type and body of what a path answers."""
        return await within_patience(self._ask(path, body))

    async def _ask(self, path: str, body: bytes) -> dict[str, Any]:
        if self._ends is None:
            self._ends = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._ends
        sent = request("POST", path, body, [("x-request-id", "7")])
        writer.write(sent.replace(b"connection: close\r\n", b"", 1))
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
        if "chunked" in headers.get("transfer-encoding", ""):
            answer = b"".join([piece async for piece in _chunks(reader)])
        else:
            answer = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return {
            "status": int(head.split()[1]),
            "type": headers.get("content-type", ""),
            "body": text_of(_blank(answer)),
        }

    def close(self) -> None:
        if self._ends is not None:
            self._ends[1].close()
            self._ends = None


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while count := int(await reader.readline(), 16):
        yield await reader.readexactly(count)
        await reader.readline()
    await reader.readline()


def _blank(body: bytes) -> bytes:
    for pattern, instead in BLANK:
        body = pattern.sub(instead, body)
    return NUMBER.sub(_rounded, body)


async def call(served: Served, path: str, raw: bytes) -> dict[str, Any]:
    """The messages that a method answers with, in bytes, and the status where there is one."""
    channel: Any = served.channel
    kind = response_type(path)
    messages: list[bytes] = []
    answer: dict[str, Any] = {}
    try:
        if path.endswith("/Generate"):
            messages = [each async for each in channel.unary_stream(path)(raw, timeout=60)]
        else:
            messages = [await channel.unary_unary(path)(raw, timeout=60)]
    except grpc.aio.AioRpcError as error:
        answer = {"status": error.code().name, "details": error.details()}
    return answer | {"messages": [_message(kind.FromString(each)) for each in messages]}


def _message(answer: Message) -> str:
    _blank_message(answer)
    return base64.b64encode(answer.SerializeToString(deterministic=True)).decode()


def _blank_message(answer: Message) -> None:
    for field, value in answer.ListFields():
        is_number = field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE)
        if field.name == "timings":
            for each, _ in value.ListFields():
                setattr(value, each.name, 1.0)
        elif is_number and field.is_repeated:
            value[:] = [_near(each) for each in value]
        elif is_number:
            setattr(answer, field.name, _near(value))
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                _blank_message(each)


def _near(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def text_of(raw: bytes) -> str:
    """Bytes as a text of JSON: what is no UTF-8 in half surrogates, as Python has it."""
    return raw.decode(errors="surrogateescape")


def bytes_of(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
