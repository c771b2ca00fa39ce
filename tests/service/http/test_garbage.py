"""Requests with random faults: each gets an answer or an end, no traceback, and leaves nothing."""

import asyncio
import logging
import random

import pytest

from tests.fakes.http import ask, port_of
from tests.fakes.serving import Served, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"http_header_timeout_s": 0.5, "receive_timeout_s": 0.5, "max_message_bytes": 2**16}
NUM_REQUESTS = 400
BODY = b'{"model": "spam", "texts": ["win a prize", "now"]}'
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
WHOLE = [
    b"POST /api/Classify HTTP/1.1\r\nhost: localhost\r\n" + LENGTH + b"\r\n" + BODY,
    b"POST /api/Classify HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    + CHUNKS,
    b"POST /v2/models/simple/infer HTTP/1.1\r\nhost: localhost\r\ninference-header-content-length: "
    b"20\r\n" + LENGTH + b"\r\n" + BODY,
    b"GET /v2/models/spam/versions/1/config HTTP/1.1\r\nhost: localhost\r\n\r\n",
    b"POST /api/Generate HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n"
    b"content-length: 33\r\n\r\n" + b'{"model": "tale", "text": "once"}',
]
ODD = [b"\r\n", b"\n", b"\r", b"\x00", b"\xff", b":", b" ", b"%2F", b"%", b"{", b'"', b"9" * 30]


def _faulty(source: random.Random) -> bytes:
    """One or several requests in a row, with some faults."""
    sent = bytearray(b"".join(source.choices(WHOLE, k=source.choice([1, 1, 1, 3]))))
    for _ in range(source.choice([0, 1, 1, 2, 5])):
        place = source.randrange(len(sent))
        kind = source.randrange(4)
        if kind == 0:
            sent[place] = source.randrange(256)
        elif kind == 1:
            sent[place:place] = source.choice(ODD)
        elif kind == 2:
            del sent[place : place + source.choice([1, 2, 10])]
        else:
            other = source.randrange(len(sent))
            sent[place:place] = sent[other : other + source.choice([4, 30])]
    return bytes(sent)


async def _send(served: Served, sent: bytes, source: random.Random) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
    cut = source.randrange(len(sent))
    writer.write(sent[:cut])
    await asyncio.sleep(0)
    writer.write(sent[cut:])
    try:
        async with asyncio.timeout(source.choice([0.0, 0.05, 0.3])):
            received = await reader.read()
            assert not received or received.startswith(b"HTTP/1.1 ")
    except (TimeoutError, ConnectionError):
        pass
    writer.close()


async def test_faults_leave_neither_tracebacks_nor_calls(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    source = random.Random(8)  # noqa: S311 - the same each time
    num_tasks = len(asyncio.all_tasks())
    for _ in range(NUM_REQUESTS // 20):
        sent = [_faulty(source) for _ in range(20)]
        await asyncio.gather(*(_send(served, each, source) for each in sent))
        assert (await ask(served, "GET", "/ping")).status == 200
    assert served.app._http is not None
    front = served.app._http.front
    await eventually(lambda: front.num_calls == 0)
    await eventually(lambda: not served.app._http._connections.state.connections)  # type: ignore[union-attr]
    await eventually(lambda: served.app._admission.num_bytes == 0)
    assert served.app._admission.num_inside == 0
    await eventually(lambda: len(asyncio.all_tasks()) <= num_tasks)
    assert [record.getMessage() for record in caplog.records] == []
