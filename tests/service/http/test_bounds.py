"""The bounds of a connection and of a request, each over a raw socket."""

import asyncio
import gzip
import time
import zlib

import pytest

from tests.fakes.every_task import every_task
from tests.fakes.http import answers, ask, exchange, port_of, request
from tests.fakes.serving import Served, eventually, within_patience

pytestmark = pytest.mark.asyncio(loop_scope="module")
LIMIT = 2**16
SETTINGS = {
    "http_max_header_bytes": 4_096,
    "http_header_timeout_s": 0.3,
    "http_keepalive_s": 0.3,
    "http_min_body_bytes_per_s": 1_000,
    "http_max_json_depth": 8,
    "receive_timeout_s": 0.3,
    "max_message_bytes": LIMIT,
    "max_bytes_in_flight": 2 * LIMIT,
}
HEAD = b"POST /api/ListModels HTTP/1.1\r\nhost: localhost\r\n"


async def test_headers_are_bounded(served: Served) -> None:
    whole = request("GET", "/ping", None, [("x", "a" * 5_000)])
    many = request("GET", "/ping", None, [(f"x{i}", "a") for i in range(900)])
    unending = b"GET /ping HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 5_000
    path = request("GET", "/" + "a" * 5_000)
    for sent in (whole, many, unending, path):
        (answer,) = answers(await exchange(port_of(served), sent))
        assert (answer.status, answer.headers["connection"]) == (431, "close")
    almost = request("GET", "/ping", None, [("x", "a" * 3_900)])
    assert answers(await exchange(port_of(served), almost))[0].status == 200


@pytest.mark.parametrize("sent", [b"G", b"GET /ping HTTP/1.1\r\nhost: loc", b"\r\n"])
async def test_headers_have_a_deadline(served: Served, sent: bytes) -> None:
    started_s = time.monotonic()
    received = await exchange(port_of(served), sent)
    assert 0.2 < time.monotonic() - started_s < 5
    assert [answer.status for answer in answers(received)] == [408]


async def test_headers_that_trickle_have_the_same_deadline(served: Served) -> None:
    trickle = [b"GET /ping HTTP/1.1\r\n"] + [b"x: a\r\n"] * 500  # in at least 10 s
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))

    async def send() -> None:
        for piece in trickle:
            writer.write(piece)
            await asyncio.sleep(0.02)

    sending = asyncio.create_task(send())
    received = await within_patience(reader.read())
    assert not sending.done()
    assert answers(received)[0].status == 408
    sending.cancel()
    writer.close()


async def test_a_connection_without_a_request_is_closed(served: Served) -> None:
    assert await exchange(port_of(served)) == b""


async def test_a_connection_may_be_idle_for_a_while_between_requests(served: Served) -> None:
    started_s = time.monotonic()
    received = await exchange(port_of(served), b"GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2)
    assert [answer.status for answer in answers(received)] == [200, 200]
    assert 0.2 < time.monotonic() - started_s < 5


async def test_bodies_are_bounded_by_their_length_and_by_what_comes(served: Served) -> None:
    announced = HEAD + b"content-length: %d\r\n\r\n" % (LIMIT + 1)
    (by_length,) = answers(await exchange(port_of(served), announced))
    chunks = [b"4000\r\n" + b" " * 0x4000 + b"\r\n"] * 5
    started = HEAD + b"transfer-encoding: chunked\r\n\r\n"
    (by_bytes,) = answers(await exchange(port_of(served), started, *chunks))
    for answer in (by_length, by_bytes):
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        text = f"the body has more than {LIMIT} bytes: see --max-message-bytes"
        assert answer.json == {"error": text}


async def test_a_client_hears_why_though_it_goes_on_sending(served: Served) -> None:
    """Some megabytes more: a socket that is closed with bytes unread would be reset."""
    sent = HEAD + b"content-length: 4000000\r\n\r\n"
    pieces = [b" " * 100_000] * 40
    (answer,) = answers(await exchange(port_of(served), sent, *pieces))
    assert answer.status == 413


async def test_a_body_has_a_deadline_and_a_rate(served: Served) -> None:
    """After 0.3 s it must have come at 1,000 bytes per second."""
    silent = HEAD + b"content-length: 10\r\n\r\n{"
    assert answers(await exchange(port_of(served), silent))[0].status == 408
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
    writer.write(HEAD + b"connection: close\r\ncontent-length: 1500\r\n\r\n")
    for _ in range(15):  # for 0.6 s, at more than the rate
        writer.write(b" " * 100)
        await asyncio.sleep(0.04)
    assert answers(await within_patience(reader.read()))[0].status == 200
    writer.close()


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
async def test_bodies_are_inflated_within_the_bound(served: Served, pack: object) -> None:
    assert callable(pack)
    name = "gzip" if pack is gzip.compress else "deflate"
    headers = [("content-encoding", name)]
    good = await ask(served, "POST", "/api/ListModels", pack(b"{ }"), headers)
    bomb = await ask(served, "POST", "/api/ListModels", pack(b" " * 2**24), headers)
    torn = await ask(served, "POST", "/api/ListModels", pack(b"{ }")[:-6], headers)
    plain = await ask(served, "POST", "/api/ListModels", b"{ }", headers)
    assert [good.status, bomb.status, torn.status, plain.status] == [200, 400, 400, 400]
    assert bomb.json["error"] == f"the body has more than {LIMIT} bytes once it is inflated"


async def test_a_request_that_needs_no_body_is_held_to_the_same_time(served: Served) -> None:
    head = b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n"
    asking = b"origin: http://localhost\r\naccess-control-request-method: POST\r\n"
    for sent in (b"GET /ping" + head + b"\r\n", b"OPTIONS /ping" + head + asking + b"\r\n"):
        (answer,) = answers(await exchange(port_of(served), sent, b"{"))
        assert answer.headers["connection"] == "close"
        assert answer.status in (403, 408)


async def test_an_unknown_encoding_is_refused(served: Served) -> None:
    answer = await ask(served, "POST", "/api/ListModels", b"{}", [("content-encoding", "br")])
    assert (answer.status, answer.headers["accept-encoding"]) == (415, "gzip, deflate")


async def test_json_is_bounded_in_depth(served: Served) -> None:
    deep = b'{"a": ' * 9 + b"1" + b"}" * 9
    answer = await ask(served, "POST", "/api/Classify", deep)
    assert (answer.status, answer.json["error"]) == (
        400,
        "the body is nested 9 deep, expected at most 8: see --http-max-json-depth",
    )


async def test_bytes_in_flight_are_shared_and_given_back(served: Served) -> None:
    """Two bodies fill the bound while they come; the third is refused, at once."""
    admission = served.app._admission
    connections = []
    for _ in range(2):
        connection = await asyncio.open_connection("127.0.0.1", port_of(served))
        connection[1].write(HEAD + b"content-length: %d\r\n\r\n" % LIMIT + b" " * (LIMIT - 10))
        connections.append(connection)
    await eventually(lambda: admission.num_bytes >= 2 * LIMIT - 20)
    third = await ask(served, "POST", "/api/ListModels", b" " * 100)
    assert (third.status, third.headers["retry-after"]) == (429, "1")
    for _, writer in connections:
        writer.close()
    await eventually(lambda: admission.num_bytes == 0)
    assert (await ask(served, "POST", "/api/ListModels", b" " * 100)).status == 200


async def test_connections_are_bounded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The third of two is closed at once, and its place is free when another leaves."""
    folder = tmp_path_factory.mktemp("model_repository")
    async with every_task(folder, http_port=0, max_connections=2) as served:
        port = port_of(served)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        assert await exchange(port, request("GET", "/ping")) == b""
        held[0][1].close()
        await eventually(lambda: len(_connections(served)) == 1)
        (answer,) = answers(await exchange(port, request("GET", "/ping")))
        assert answer.status == 200
        held[1][1].close()


def _connections(served: Served) -> set[object]:
    assert served.app._http is not None
    return {*served.app._http._connections.state.connections}


async def test_a_connection_ends_at_its_age_with_an_answer(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """So that clients connect to new replicas."""
    folder = tmp_path_factory.mktemp("model_repository")
    async with every_task(folder, http_port=0, max_connection_age_s=1.0) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
        asked = b"GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n"
        writer.write(asked)
        assert b"connection" not in await reader.readuntil(b'{"live":true}')
        await asyncio.sleep(1.1)
        writer.write(asked)
        (answer,) = answers(await within_patience(reader.read()))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        writer.close()
