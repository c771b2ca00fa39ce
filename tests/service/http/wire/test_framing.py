"""What may not be read in two ways: smuggling, pipelining, garbage, over a raw socket.

After each of them the server answers the next client.
"""

import asyncio

import pytest

from tests.fakes.http import answers, ask, exchange, port_of, request
from tests.fakes.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"http_max_header_bytes": 4_096, "max_message_bytes": 2**16}
HEAD = b"POST /api/ListModels HTTP/1.1\r\nhost: localhost\r\n"
SMUGGLED = b"GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
# Bytes, and the statuses that they get before the connection ends.
REFUSED: dict[str, tuple[bytes, list[int]]] = {
    "length and chunks": (
        HEAD + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        [400],
    ),
    "chunks and length": (
        HEAD + b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
        [400],
    ),
    "two lengths": (HEAD + b"content-length: 2\r\ncontent-length: 0\r\n\r\n{}" + SMUGGLED, [400]),
    "two equal lengths": (HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}", [400]),
    "a list of lengths": (HEAD + b"content-length: 2, 2\r\n\r\n{}", [400]),
    "a negative length": (HEAD + b"content-length: -2\r\n\r\n{}", [400]),
    "a length with a sign": (HEAD + b"content-length: +2\r\n\r\n{}", [400]),
    "a length in hex": (HEAD + b"content-length: 0x2\r\n\r\n{}", [400]),
    "a length without end": (HEAD + b"content-length: " + b"9" * 40 + b"\r\n\r\n{}", [400]),
    "a folded header": (HEAD + b"x: a\r\n b\r\ncontent-length: 2\r\n\r\n{}", [400]),
    "a space before a colon": (HEAD + b"content-length : 2\r\n\r\n{}", [400]),
    "a line feed alone": (b"POST /api/ListModels HTTP/1.1\nhost: localhost\n\n", [400]),
    "a carriage return alone": (HEAD + b"x: a\rb: c\r\n\r\n", [400]),
    "a zero in a header": (HEAD + b"x: a\x00b\r\n\r\n", [400]),
    "a transfer coding before chunks": (
        HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + SMUGGLED,
        [501],
    ),
    "a transfer coding in a header of its own": (
        HEAD + b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        [501],
    ),
    "another transfer coding": (HEAD + b"transfer-encoding: gzip\r\n\r\n0\r\n\r\n", [400]),
    "chunked twice": (HEAD + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n", [400]),
    "chunked, then another": (HEAD + b"transfer-encoding: chunked, x\r\n\r\n0\r\n\r\n", [400]),
    "a chunk's size in words": (CHUNKED + b"two\r\n{}\r\n0\r\n\r\n", [400]),
    "a negative chunk": (CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n", [400]),
    "a chunk's size without end": (CHUNKED + b"f" * 20 + b"\r\n{}\r\n0\r\n\r\n", [400]),
    "a chunk longer than its size": (CHUNKED + b"2\r\n{}{}\r\n0\r\n\r\n", [400]),
    "an extension of a chunk without end": (CHUNKED + b"2;" + b"x" * 700_000, [400]),
    "more framing than content": (CHUNKED + (b"1;" + b"x" * 4_000 + b"\r\n \r\n") * 200, [400]),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [400]),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400]),
    "another version": (b"GET /ping HTTP/9.9\r\nhost: localhost\r\n\r\n", [400]),
    "no version": (b"GET /ping\r\n\r\n", [505]),
    "an unknown method": (b"NIX /ping HTTP/1.1\r\nhost: localhost\r\n\r\n", [400]),
    "bytes beyond ASCII in a path": (b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n", [400]),
    "a tunnel": (b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n", [400]),
    "garbage after an answer": (SMUGGLED + b"\x00\x01garbage\r\n\r\n", [200]),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_can_be_read_in_two_ways_ends_its_connection(served: Served, name: str) -> None:
    sent, statuses = REFUSED[name]
    received = await exchange(port_of(served), sent)
    assert [answer.status for answer in answers(received)] == statuses
    assert (await ask(served, "GET", "/ping")).status == 200


async def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    paths = ["/ping", "/nix", "/version", "/v1/models"]
    sent = b"".join(f"GET {p} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() for p in paths[:-1])
    received = await exchange(port_of(served), sent + request("GET", paths[-1]))
    assert [answer.status for answer in answers(received)] == [200, 404, 200, 200]


async def test_what_came_before_garbage_is_answered(served: Served) -> None:
    received = await exchange(port_of(served), SMUGGLED * 5 + b"\x00garbage\r\n\r\n")
    assert [answer.status for answer in answers(received)] == [200] * 5


async def test_requests_in_one_piece_without_end_are_bounded(served: Served) -> None:
    """Those that are answered are answered in order, and the connection ends."""
    received = await exchange(port_of(served), SMUGGLED * 2_000)
    found = [answer.status for answer in answers(received)]
    assert 32 <= len(found) < 2_000
    assert set(found) == {200}


async def test_a_request_in_pieces_of_a_byte_is_read(served: Served) -> None:
    raw = request("POST", "/api/ListModels", b"{}")
    pieces = [raw[i : i + 1] for i in range(len(raw))]
    (answer,) = answers(await exchange(port_of(served), *pieces))
    assert answer.status == 200


async def test_chunks_of_a_byte_and_trailers_are_read(served: Served) -> None:
    """A trailer is no header: it cannot add what was not looked at."""
    body = b"{        }"
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    sent = CHUNKED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n") + chunks
    sent += b"0\r\ncontent-encoding: gzip\r\n\r\n"
    (answer,) = answers(await exchange(port_of(served), sent))
    assert answer.status == 200


async def test_a_client_is_asked_for_a_body_only_if_it_may_send_it(served: Served) -> None:
    """Expect: 100-continue; what is refused by its headers is refused before."""
    expecting = [("expect", "100-continue"), ("content-length", "2")]
    received = await exchange(
        port_of(served), request("POST", "/api/ListModels", None, expecting), b"{}"
    )
    first, *rest = received.split(b"\r\n\r\n", 1)
    assert first == b"HTTP/1.1 100 Continue"
    assert answers(rest[0])[0].status == 200
    refused = await exchange(
        port_of(served),
        request("POST", "/api/ListModels", None, [expecting[0], ("content-length", "99999999")]),
    )
    assert [answer.status for answer in answers(refused)] == [413]


UPGRADES = {
    "h2c": [
        ("upgrade", "h2c"),
        ("connection", "Upgrade, HTTP2-Settings"),
        ("http2-settings", "AA"),
    ],
    "websocket": [("connection", "upgrade"), ("upgrade", "websocket")],
    "TLS": [("connection", "Upgrade"), ("upgrade", "TLS/1.3")],
    "several": [("connection", "upgrade"), ("upgrade", "h2c, websocket;q=1")],
}
BODIES = {"no body": None, "a body": b'{"texts": ["free"]}', "an empty body": b""}


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("step", [1, 10_000])
async def test_a_request_that_asks_for_another_protocol_is_read_as_it_is(
    served: Served, upgrade: str, body: str, is_chunked: bool, step: int
) -> None:
    """With the same request before and behind it, in pieces of any size (RFC 9110, 7.8)."""
    plain = _request(BODIES[body], is_chunked, [])
    asking = _request(BODIES[body], is_chunked, UPGRADES[upgrade])
    (expected, *_) = answers(await exchange(port_of(served), plain + LAST))
    sent = plain + asking + asking + plain + LAST
    pieces = [sent[start : start + step] for start in range(0, len(sent), step)]
    received = answers(await exchange(port_of(served), b"".join(pieces[:3]), *_pairs(pieces[3:])))
    assert [(answer.status, answer.body) for answer in received[:4]] == [
        (expected.status, expected.body)
    ] * 4
    assert received[4].status == 200
    assert len(received) == 5


LAST = b"GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def _pairs(pieces: list[bytes]) -> list[bytes]:
    """The pieces, some together, so that few waits are between them."""
    size = max(1, len(pieces) // 8)
    return [b"".join(pieces[start : start + size]) for start in range(0, len(pieces), size)]


def _request(body: bytes | None, is_chunked: bool, headers: list[tuple[str, str]]) -> bytes:
    lines = ["POST /api/Embed HTTP/1.1" if body else "GET /version HTTP/1.1", "host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append("transfer-encoding: chunked" if is_chunked else f"content-length: {len(body)}")
        if is_chunked:
            body = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


async def test_nothing_is_read_behind_the_last_request(served: Served) -> None:
    sent = request("GET", "/ping", None, UPGRADES["websocket"])
    (answer,) = answers(await exchange(port_of(served), sent + SMUGGLED))
    assert answer.status == 200


TARGETS = {
    "http://evil.example/ping": 403,
    "HTTP://EVIL.example:80/ping": 403,
    "https://evil.example/?x": 403,
    "http://localhost/ping": 200,
    "http://localhost:8000/ping": 200,
    "http://127.0.0.1/ping": 200,
    "http://localhost@evil.example/ping": 400,
    "http://evil.example@localhost/ping": 400,
    "ftp://localhost/ping": 400,
    "http:///ping": 400,
}


@pytest.mark.parametrize("target", TARGETS)
async def test_the_host_of_a_whole_target_is_checked_as_the_header_is(
    served: Served, target: str
) -> None:
    """Whatever the header says, which a server ignores beside it."""
    assert (await ask(served, "GET", target)).status == TARGETS[target]


async def test_a_target_of_our_own_counts_before_the_header(served: Served) -> None:
    raw = b"GET http://localhost/ping HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n"
    assert [answer.status for answer in answers(await exchange(port_of(served), raw))] == [200]


async def test_the_head_of_an_answer_has_no_body(served: Served) -> None:
    received = await exchange(port_of(served), request("HEAD", "/ping"))
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"content-length: 13" in head
    assert not body


async def test_a_request_has_one_host(served: Served) -> None:
    without = await exchange(port_of(served), b"GET /ping HTTP/1.1\r\nconnection: close\r\n\r\n")
    twice = await exchange(port_of(served), request("GET", "/ping", None, [("host", "other")]))
    older = await exchange(port_of(served), b"GET /ping HTTP/1.0\r\n\r\n")
    found = [answers(raw)[0].status for raw in (without, twice, older)]
    assert found == [400, 400, 200]


async def test_half_closed_connections_end(served: Served) -> None:
    """A client that sends no more has left, whatever it still waits for."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
    writer.write(HEAD + b"content-length: 10\r\n\r\n{")
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert served.app._http is not None
    assert served.app._http.front.num_calls == 0
