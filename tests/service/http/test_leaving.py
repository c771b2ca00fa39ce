"""Clients that leave, streams that are not read, and the server's own end."""

import asyncio
import gc
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from service.errors import ModelFailed
from service.http.request import Request
from tests.fakes.every_task import every_task
from tests.fakes.http import answers, ask, exchange, port_of, request
from tests.fakes.serving import Served, eventually, within_patience

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"http_heartbeat_s": 0.1, "send_timeout_s": 0.5}
PROMPT = {"model": "tale", "text": "once", "sampling_params": {"temperature": 0.0}}
EVENTS = [("accept", "text/event-stream")]


def _post(path: str, body: dict[str, Any], *headers: tuple[str, str]) -> bytes:
    return request("POST", path, json.dumps(body).encode(), headers)


def _front(served: Served) -> Any:
    assert served.app._http is not None
    return served.app._http.front


async def _leave(served: Served, sent: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
    writer.write(sent)
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()


@pytest.mark.parametrize("method", ["Generate", "GenerateUnary"])
async def test_what_200_clients_left_behind_is_gone(served: Served, method: str) -> None:
    """They hang up while the first step of what they asked for runs: it is the last of them."""
    (decoder,) = served.decoders
    decoder.hold()
    sent = _post(f"/api/{method}", PROMPT | {"sampling_params": {"max_tokens": 40}}, *EVENTS)
    num_tasks = len(asyncio.all_tasks())
    leaving = asyncio.gather(*(_leave(served, sent) for _ in range(200)))
    await asyncio.to_thread(decoder.wait_for_runs, 1)
    await leaving
    await eventually(lambda: _front(served).num_calls == 0)
    decoder.release()
    await eventually(lambda: served.num_running("tale") + served.num_waiting("tale") == 0)
    num_runs = len(decoder.calls)
    answer = await within_patience(ask(served, "POST", "/api/GenerateUnary", PROMPT))
    assert answer.status == 200
    assert num_runs <= 2, "whole, what they asked for takes 1,000 runs"
    assert served.app._admission.num_bytes == 0
    assert served.app._admission.num_inside == 0
    await eventually(lambda: len(asyncio.all_tasks()) <= num_tasks)


async def test_a_client_that_leaves_a_queue_is_taken_out_of_it(served: Served) -> None:
    held = await served.hold("spam")
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
    writer.write(_post("/api/Classify", {"model": "spam", "texts": ["win"]}))
    await eventually(lambda: served.num_waiting("spam") == 1)
    writer.close()
    await eventually(lambda: served.num_waiting("spam") == 0)
    served.release("spam")
    await held


async def test_requests_are_gone_when_they_are_over(served: Served) -> None:
    """Answered, refused, failed, streamed or left: at once, without the garbage collector."""
    (decoder,) = served.decoders
    whole = {"model": "spam", "texts": ["win"]}
    await ask(served, "GET", "/ping")  # the connection before this keeps its last
    gc.collect()
    gc.disable()
    try:
        for body in (whole, whole | {"model": "nix"}, whole | {"nix": 1}, {"texts": 7}):
            await ask(served, "POST", "/api/Classify", body)
        await ask(served, "POST", "/api/Generate", PROMPT, EVENTS)
        decoder.error = ModelFailed("the model is broken")
        await ask(served, "POST", "/api/Generate", PROMPT, EVENTS)
        served.forget()
        held = await served.hold("spam")
        await _leave(served, _post("/api/Classify", whole))
        await eventually(lambda: _front(served).num_calls == 0)
        served.release("spam")
        await held
        await asyncio.sleep(0.05)
        assert [each for each in gc.get_objects() if isinstance(each, Request)] == []
    finally:
        gc.enable()


async def test_a_silent_stream_says_that_it_lives(served: Served) -> None:
    (decoder,) = served.decoders
    decoder.hold(after=5)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
    writer.write(_post("/api/Generate", PROMPT, *EVENTS))
    first = await within_patience(reader.readuntil(b"\n\n\r\n"))
    assert b"data: " in first
    received = first + await within_patience(reader.readuntil(b": ping\n\n\r\n"))
    decoder.release()
    received += await within_patience(reader.read())
    (answer,) = answers(received)
    events = [event for event in answer.body.split(b"\n\n") if event and event != b": ping"]
    assert all(event.startswith(b"data: {") for event in events)
    writer.close()


async def test_a_model_that_fails_amid_a_stream_is_its_last_event(served: Served) -> None:
    (decoder,) = served.decoders
    decoder.hold(after=5)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
    writer.write(_post("/api/Generate", PROMPT, *EVENTS))
    first = await within_patience(reader.readuntil(b"\n\n\r\n"))
    decoder.error = ModelFailed("the model is broken")
    decoder.release()
    (answer,) = answers(first + await within_patience(reader.read()))
    last = answer.body.rstrip().split(b"\n\n")[-1]
    assert "broken" in json.loads(last.removeprefix(b"data: "))["error"]
    writer.close()


async def test_a_model_that_fails_before_the_first_event_is_a_status(served: Served) -> None:
    (decoder,) = served.decoders
    decoder.error = ModelFailed("the model is broken")
    answer = await ask(served, "POST", "/api/Generate", PROMPT, EVENTS)
    assert answer.status == 500
    assert "broken" in answer.json["error"]


async def test_an_answer_that_is_not_read_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A description of all models, some megabytes in all, of which none is read."""
    async with every_task(tmp_path, http_port=0, send_timeout_s=0.3) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served), limit=1_024)
        one = b"GET /v2/models/stats HTTP/1.1\r\nhost: localhost\r\n\r\n"
        sending = asyncio.create_task(_send_always(writer, one * 16))
        await eventually(lambda: writer.transport.is_closing() or reader.at_eof() or sending.done())
        await eventually(lambda: served.app._admission.num_bytes == 0)
        assert _front(served).num_calls == 0
        sending.cancel()
        writer.close()
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def _send_always(writer: asyncio.StreamWriter, sent: bytes) -> None:
    try:
        while True:
            writer.write(sent)
            await writer.drain()
    except ConnectionError:
        return


async def test_a_drain_answers_what_is_in_flight_and_closes_connections(tmp_path: Path) -> None:
    """Not ready at once, served during the delay; then each connection ends with its answer."""
    async with every_task(tmp_path, http_port=0, drain_delay_s=0.3) as served:
        port = port_of(served)
        held = await served.hold("spam")
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        idle_writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await idle_reader.readuntil(b'{"ready":true}')
        asked = b"POST /api/Classify HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%s"
        body = b'{"model": "spam", "texts": ["win"]}'
        waiting = asyncio.create_task(exchange(port, asked % (len(body), body)))
        await eventually(lambda: served.num_waiting("spam") == 1)
        stopping = asyncio.create_task(served.app.stop())
        await eventually(lambda: served.app._admission.is_leaving)
        assert (await ask(served, "GET", "/health")).status == 503
        assert (await ask(served, "GET", "/ping")).status == 200
        await eventually(lambda: served.app._admission.is_draining)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert await within_patience(idle_reader.read()) == b""
        served.release("spam")
        (answer,) = answers(await within_patience(waiting))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await within_patience(stopping)
        await held
        idle_writer.close()


async def test_what_a_drain_does_not_finish_is_told_so(tmp_path: Path) -> None:
    async with every_task(tmp_path, http_port=0, drain_timeout_s=0.1) as served:
        held = await served.hold("spam")
        sent = _post("/api/Classify", {"model": "spam", "texts": ["win"]})
        waiting = asyncio.create_task(exchange(port_of(served), sent))
        await eventually(lambda: served.num_waiting("spam") == 1)
        stopping = asyncio.create_task(served.app.stop())
        (answer,) = answers(await within_patience(waiting))
        assert answer.status == 503
        served.release("spam")
        await within_patience(stopping)
        held.cancel()
