"""The protocol's routes over a real connection: statuses, framing, streams and control."""

import asyncio
import gzip
import json
import re
import socket
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from service.contract.tensors import to_raw
from tests.fakes.http import Answer, ask, port_of
from tests.fakes.kserve import HEADER_LENGTH, ask_infer, infer_body, outputs_of
from tests.fakes.serving import (
    Served,
    eventually,
    inference,
    refusal,
    serving,
    simple_request,
    write_models,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {
    "http_port": 0,
    "max_queue_requests": 1,
    "max_message_parts": 4_096,  # 512 KiB of JSON
    "max_message_bytes": 2**24,
}
NUM_LONG = 12_000_000  # bytes, more than the buffers of both sockets hold
SIMPLE = "/v2/models/simple/infer"
TALE = {"text_input": "once upon", "sampling_parameters": '{"temperature": 0, "max_tokens": 8}'}


def body_of(content: Any) -> bytes:
    return json.dumps(content).encode()


async def post(served: Served, path: str, content: Any = None, **headers: str) -> Answer:
    body = content if isinstance(content, bytes) else body_of(content)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(served, "POST", path, body, names.items())


GETS = ["/v2/trace/setting", "/v2/models/simple/trace/setting", "/v2/logging",
        "/v2/systemsharedmemory/status", "/v2/cudasharedmemory/status"]  # fmt: skip
POSTS = [SIMPLE, "/v2/models/simple/versions/1/infer", "/v2/models/simple/generate",
         "/v2/models/simple/generate_stream", "/v2/repository/index",
         "/v2/repository/models/simple/load", "/v2/repository/models/simple/unload",
         "/v2/systemsharedmemory/region/r/register", "/v2/systemsharedmemory/unregister",
         "/v2/cudasharedmemory/region/r/register"]  # fmt: skip


@pytest.mark.parametrize("path", GETS)
async def test_settings_and_regions_are_read_as_json(served: Served, path: str) -> None:
    answer = await ask(served, "GET", path)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert isinstance(answer.json, dict | list)


@pytest.mark.parametrize(("method", "paths"), [("GET", POSTS), ("DELETE", [*GETS, *POSTS])])
async def test_other_methods_are_405_and_say_which_there_are(
    served: Served, method: str, paths: list[str]
) -> None:
    for path in paths:
        answer = await ask(served, method, path)
        assert answer.status == 405, path
        assert answer.headers["allow"] in ("get", "post", "get, post")
        assert answer.json["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/v2/nothing",
        "/v2/models/simple/nothing",
        "/v2/models",
        "/v2/models/simple/versions/1/trace/setting",
        "/v2/repository",
        "/v2/systemsharedmemory/nothing",
    ],
)
async def test_other_paths_are_404(served: Served, path: str) -> None:
    for method in ("GET", "POST"):
        answer = await ask(served, method, path)
        assert answer.status == 404
        assert answer.json["error"]


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/octet-stream"])
async def test_no_content_type_is_needed_and_none_refused(
    served: Served, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = await ask_infer(served, simple_request(), is_binary=True, headers=headers)
    assert answer.status == 200


async def test_a_binary_answer_says_how_long_its_json_is(served: Served) -> None:
    answer = await ask_infer(served, simple_request(2), is_binary=True)
    assert answer.headers["content-type"] == "application/octet-stream"
    outputs = outputs_of(answer.body, answer.headers[HEADER_LENGTH])
    assert outputs["OUTPUT0"] == np.full((2, 16), 5, "<i4").tobytes()
    answer = await ask_infer(served, simple_request(2), is_binary=False)
    assert (answer.headers["content-type"], HEADER_LENGTH in answer.headers) == (
        "application/json",
        False,
    )


@pytest.mark.parametrize(
    ("length", "text"),
    [
        ("x", "Unable to parse Inference-Header-Content-Length, got: x"),
        ("-1", "Unable to parse Inference-Header-Content-Length, got: -1"),
        ("99999999999", "inference header size should be in range (0, 2), got: 99999999999"),
    ],
)
async def test_a_length_that_is_none_is_refused(served: Served, length: str, text: str) -> None:
    answer = await post(served, SIMPLE, b"{}", Inference_Header_Content_Length=length)
    assert (answer.status, answer.json["error"]) == (400, text)


async def test_without_a_length_all_is_json(served: Served) -> None:
    body, _ = infer_body(simple_request(), is_binary=True)
    answer = await post(served, SIMPLE, body)
    assert answer.status == 400
    assert answer.json["error"].startswith("failed to parse the request JSON buffer: ")
    answer = await post(served, SIMPLE, b"")
    assert answer.status == 400


async def test_a_raw_body_is_the_only_input(served: Served) -> None:
    answer = await post(
        served, "/v2/models/spam/infer", b"lunch", Inference_Header_Content_Length="0"
    )
    assert answer.status == 200, answer.body
    found = outputs_of(answer.body, answer.headers[HEADER_LENGTH])
    response = await served.infer_text("spam", "lunch")
    assert list(found.values()) == list(response.raw_output_contents)
    answer = await post(served, SIMPLE, bytes(64), Inference_Header_Content_Length="0")
    assert answer.status == 400
    assert "Raw request must only have 1 input (found 1)" in answer.json["error"]


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
async def test_requests_may_be_compressed(
    served: Served, encoding: str, compress: Any, is_binary: bool
) -> None:
    body, headers = infer_body(simple_request(), is_binary=is_binary)
    answer = await ask(
        served,
        "POST",
        SIMPLE,
        compress(body),
        (headers | {"Content-Encoding": encoding}).items(),
    )
    assert answer.status == 200


async def test_other_encodings_are_501_and_name_those_there_are(served: Served) -> None:
    answer = await post(served, SIMPLE, b"{}", Content_Encoding="br")
    assert answer.status == 501
    assert answer.headers["accept-encoding"] == "gzip, deflate"


async def test_a_body_that_inflates_beyond_the_bound_is_refused(served: Served) -> None:
    answer = await post(served, SIMPLE, gzip.compress(bytes(2**25)), Content_Encoding="gzip")
    assert answer.status in (400, 413)
    assert str(2**24) in answer.json["error"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip", "gzip"), ("deflate", "deflate"), ("br", None), ("gzip;q=0", None), ("*", "gzip")],
)
async def test_long_answers_are_compressed_as_the_client_accepts(
    served: Served, accepted: str, encoding: str | None
) -> None:
    text = "lunch " * 1_000
    answer = await ask_infer(
        served,
        _strings(text),
        is_binary=True,
        headers={"Accept-Encoding": accepted},
    )
    assert answer.headers.get("content-encoding") == encoding
    body = answer.body
    if encoding is not None:
        assert len(body) < len(text)
        assert answer.headers["vary"] == "accept-encoding"
        body = zlib.decompress(body, zlib.MAX_WBITS | 32)
    (output,) = outputs_of(body, answer.headers[HEADER_LENGTH]).values()
    assert text.encode() in output
    short = await ask_infer(
        served, simple_request(), is_binary=True, headers={"Accept-Encoding": accepted}
    )
    assert "content-encoding" not in short.headers


def _strings(*texts: str) -> Any:
    request = inference("strings", IN=texts)
    raw = to_raw(np.array([text.encode() for text in texts], object))
    request.inputs[0].ClearField("contents")
    request.raw_input_contents.append(raw)
    return request


async def test_of_a_long_answer_the_connection_holds_little_while_it_is_not_read(
    served: Served,
) -> None:
    request = _strings("x" * NUM_LONG)
    body, headers = infer_body(request, is_binary=True)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /v2/models/strings/infer HTTP/1.1\r\nhost: localhost\r\n{lines}"
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port_of(served)))
    reader, writer = await asyncio.open_connection(sock=client, limit=2**10)
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    front = served.app._http
    assert front is not None
    (connection,) = front._connections.all
    await eventually(lambda: connection.flow.write_paused)
    await asyncio.sleep(0.05)
    assert connection.transport.get_write_buffer_size() < 2**20
    answer_head = (await reader.readuntil(b"\r\n\r\n")).decode()
    size = int(re.findall(r"\ncontent-length: (\d+)", answer_head)[0])
    assert b"x" * NUM_LONG in await reader.readexactly(size)
    writer.close()


async def test_json_beyond_the_bound_is_refused(served: Served) -> None:
    long = {"inputs": [], "id": "x" * 2**19}
    for path in (SIMPLE, "/v2/models/simple/generate"):
        answer = await post(served, path, long)
        assert answer.status == 400
        assert "exceeds the maximum allowed input size of 524288 bytes" in answer.json["error"]


async def test_deep_json_is_refused(served: Served) -> None:
    deep = b'{"inputs": [], "parameters": {"a": ' + b"[" * 50_000
    for path in (SIMPLE, "/v2/models/simple/generate"):
        answer = await post(served, path, deep)
        assert answer.status == 400
        assert answer.json["error"]


CONTROL = [
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/repository/index",
    "/v2/repository/models/simple/unload",
    "/v2/systemsharedmemory/region/r/register",
]


@pytest.mark.parametrize("path", CONTROL)
async def test_long_bodies_of_short_calls_are_refused(served: Served, path: str) -> None:
    answer = await post(served, path, {"log_format": "x" * 2**18})
    assert answer.status == 400
    assert "exceeds the maximum allowed input size of 262144 bytes" in answer.json["error"]


@pytest.mark.parametrize("num_parameters", [5_000, 100_000])
async def test_a_model_with_too_many_parameters_is_refused_before_they_are_read(
    served: Served, num_parameters: int
) -> None:
    parameters = {f"file:1/{number}": "" for number in range(num_parameters)}
    path = "/v2/repository/models/simple/load"
    answer = await post(served, path, {"parameters": parameters})
    assert answer.status == 400
    assert "more than 4096 parts" in answer.json["error"]


async def test_a_full_queue_is_503_and_says_when_to_come_back(served: Served) -> None:
    running = await served.hold("spam")
    waiting = asyncio.create_task(served.infer_text("spam", "dinner"))
    await eventually(lambda: served.num_waiting("spam") == 1)
    request = _strings("supper")
    request.model_name = "spam"
    request.inputs[0].name, request.inputs[0].shape[:] = "text", [1, 1]
    answer = await ask_infer(served, request, is_binary=True)
    served.release("spam")
    await asyncio.gather(running, waiting)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")


async def test_generate_takes_keys_as_inputs_and_parameters(served: Served) -> None:
    answer = await post(served, "/v2/models/tale/generate", {**TALE, "id": "seven"})
    assert answer.status == 200, answer.body
    assert answer.json.keys() == {"id", "model_name", "model_version", "text_output"}
    assert answer.json["text_output"].startswith("once upon")
    again = await post(
        served,
        "/v2/models/tale/versions/1/generate",
        {"text_input": ["once upon"], "parameters": {"temperature": 0, "max_tokens": 8}},
    )
    assert again.json["text_output"] == answer.json["text_output"]
    answer = await post(served, "/v2/models/nope/generate", TALE)
    assert answer.status == 404


def events_of(answer: Answer) -> list[Any]:
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    parts = answer.body.decode().split("\n\n")
    assert parts.pop() == ""
    return [json.loads(part.removeprefix("data: ")) for part in parts if part[0] != ":"]


async def test_generate_stream_gives_the_text_in_events(served: Served) -> None:
    path = "/v2/models/tale/generate_stream"
    whole = await post(served, "/v2/models/tale/generate", TALE)
    events = events_of(await post(served, path, {**TALE, "stream": True}))
    text = "".join(event["text_output"] for event in events)
    assert "once upon" + text == whole.json["text_output"]
    assert all("triton_final_response" not in event for event in events)
    (only,) = events_of(await post(served, path, TALE))
    assert only["text_output"] == whole.json["text_output"]
    tokens = {"text_input": "once", "stream": True}
    parameters = {"temperature": 0, "max_tokens": 5, "message_per_token": True}
    events = events_of(await post(served, path, {**tokens, "parameters": parameters}))
    assert len(events) >= 5


@pytest.mark.parametrize(
    ("content", "status", "text"),
    [
        ({"text_input": 5}, 400, "Unable to parse 'data' of input 'text_input'"),
        ({"stream": True}, 400, "expected number of inputs between 1 and 4 but got 1"),
        ({**TALE, "temperature": {}}, 400, "parameter 'temperature' has invalid type."),
        ({"text_input": "a", "max_tokens": -1}, 400, "max_tokens is -1"),
    ],
)
async def test_a_refusal_before_the_first_event_is_the_status(
    served: Served, content: Any, status: int, text: str
) -> None:
    for call in ("generate", "generate_stream"):
        answer = await post(served, f"/v2/models/tale/{call}", content)
        assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
        assert text in answer.json["error"]


async def test_an_error_after_the_first_event_is_the_last_one(served: Served) -> None:
    decoder = served.decoders["tale"]
    decoder.hold(after=2)
    path = "/v2/models/tale/generate_stream"
    asking = asyncio.create_task(post(served, path, {**TALE, "stream": True}))
    await asyncio.to_thread(decoder.wait_for_runs, 3)
    await asyncio.sleep(0.05)  # for the first event to leave
    decoder.error = ValueError("out of order")
    decoder.release()
    first, *_, last = events_of(await asking)
    assert first["text_output"]
    assert last == {"error": "ValueError: out of order"}


async def test_a_client_that_leaves_a_stream_ends_its_generation(served: Served) -> None:
    decoder = served.decoders["tale"]
    decoder.hold()
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(served))
    body = body_of({**TALE, "stream": True})
    head = b"POST /v2/models/tale/generate_stream HTTP/1.1\r\nHost: localhost\r\n"
    writer.write(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    await asyncio.to_thread(decoder.wait_for_runs, 1)
    assert served.num_running("tale") == 1
    writer.close()
    front = served.app._http.front  # type: ignore[union-attr] # the server has one
    await eventually(lambda: front.num_calls == 0)
    decoder.release()
    await eventually(lambda: served.num_running("tale") == 0)
    del reader
    assert (await post(served, "/v2/models/tale/generate", TALE)).status == 200


async def _listed(served: Served) -> list[str]:
    """The models that OpenAI's clients find."""
    return [model["id"] for model in (await ask(served, "GET", "/v1/models")).json["data"]]


async def test_models_come_and_go_as_the_mode_allows(tmp_path: Path) -> None:
    write_models(tmp_path)
    async with serving(tmp_path, http_port=0, model_control_mode="explicit") as served:
        answer = await post(served, "/v2/repository/index", b"")
        assert {row["state"] for row in answer.json} == {""}
        loaded = await post(served, "/v2/repository/models/simple/load", b"")
        assert (loaded.status, loaded.body) == (200, b"")
        ready = await post(served, "/v2/repository/index", {"ready": True})
        assert [row["name"] for row in ready.json] == ["simple"]
        assert await _listed(served) == ["simple"]
        assert (await ask_infer(served, simple_request(), is_binary=True)).status == 200
        wrong = await post(
            served, "/v2/repository/models/simple/load", {"parameters": {"unknown": "x"}}
        )
        assert (wrong.status, wrong.json["error"]) == (
            400,
            "unrecognized load parameter 'unknown'.",
        )
        parameters = {"parameters": {"unload_dependents": False}}
        assert (await post(served, "/v2/repository/models/simple/unload", parameters)).status == 200
        assert await _listed(served) == []
        assert (await ask_infer(served, simple_request(), is_binary=True)).status == 404
        for path in ("index", "models/simple/load", "models/simple/unload"):
            named = await post(served, f"/v2/repository/mine/{path}", b"")
            assert named.status == 501
            assert named.json["error"] == "'repository_name' specification is not supported"


async def test_the_mode_none_refuses_to_load(served: Served) -> None:
    answer = await post(served, "/v2/repository/models/simple/load", b"")
    message = pb.RepositoryModelLoadRequest(model_name="simple")
    _, text = await refusal(served.inference.RepositoryModelLoad(message))
    assert (answer.status, answer.json["error"]) == (503, text)
