"""What bounds a connection, and what a silent client may cost."""

import asyncio
import importlib
import queue
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import generation_pb2
from grpc import StatusCode
from grpc._cython import cygrpc  # type: ignore[attr-defined] # compiled
from grpc_health.v1 import health_pb2
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2_grpc

from service.rpc.metadata_bound import metadata_bound
from service.rpc.server import server_options
from service.settings import Settings
from tests.fakes.serving import (
    Served,
    check_health,
    echo_request,
    eventually,
    refusal,
    serving,
    simple_request,
    text_request,
    within_patience,
)
from tests.fakes.sessions import PATIENCE_S

SILENT_CONNECTIONS = 200
PINGING = triton.KeepAliveOptions(
    keepalive_time_ms=1_000, keepalive_permit_without_calls=True, http2_max_pings_without_data=0
)


@pytest.fixture
def connections() -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        opened: list[socket.socket] = []
        yield opened
        for connection in opened:
            stack.enter_context(connection)


async def test_200_silent_connections_do_not_keep_a_client_out(
    models: Path, connections: list[socket.socket]
) -> None:
    """Some send nothing, some the beginning of a preface, some a header of a frame that ends."""
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    beginnings = (b"", preface[:7], preface, preface + b"\x00\x00", b"GET / HTTP/1.1\r\n")
    async with serving(models) as served:
        for number in range(SILENT_CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", served.app.grpc_port))
            connections.append(connection)
            connection.sendall(beginnings[number % len(beginnings)])
        for _ in range(20):
            async with grpc.aio.insecure_channel(served.address) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                response = await stub.ModelInfer(text_request("spam", "lunch"), timeout=PATIENCE_S)
                assert response.outputs


async def test_connections_beyond_the_bound_are_closed_at_once(
    repository: Path, connections: list[socket.socket]
) -> None:
    """Of 4, the client has one; those it opens when others are gone are taken."""
    async with serving(repository, max_connections=4) as served:
        await check_health(served.channel)
        for _ in range(6):
            connection = socket.create_connection(("127.0.0.1", served.app.grpc_port))
            connection.settimeout(PATIENCE_S)
            connections.append(connection)

        def is_open(connection: socket.socket) -> bool:
            """The server speaks first, with its settings."""
            with suppress(ConnectionError):
                return bool(connection.recv(1))
            return False

        found = [await asyncio.to_thread(is_open, connection) for connection in connections]
        assert sorted(found) == [False] * 3 + [True] * 3
        assert await check_health(served.channel)
        while connections:
            connections.pop().close()

        async def until_taken() -> None:
            while True:
                with (
                    suppress(grpc.aio.AioRpcError),
                    socket.create_connection(("127.0.0.1", served.app.grpc_port)) as late,
                ):
                    late.settimeout(PATIENCE_S)
                    if await asyncio.to_thread(is_open, late):
                        return

        await within_patience(until_taken())


async def test_a_stream_that_is_not_read_ends_after_the_bound(models: Path) -> None:
    """64 answers of 1 MiB, none of which is read: what they hold is freed 0.2 s later."""
    async with serving(models, send_timeout_s=0.2) as served:
        served.sessions["strings"].hold()
        call = served.inference.ModelStreamInfer(iter([echo_request(2**20)] * 64))
        admission = served.app._admission
        await eventually(lambda: admission.num_inside == 64)
        served.release("strings")
        await eventually(lambda: admission.num_inside == 0)
        assert (await served.infer_text("spam", "lunch")).outputs

        async def read_all() -> None:
            while await call.read() is not grpc.aio.EOF:
                pass

        code, text = await refusal(read_all())
        assert code is StatusCode.DEADLINE_EXCEEDED
        assert text == "an answer was not read for 0.2 s, which is the limit"


async def test_a_client_that_reads_now_and_then_is_no_slow_reader(models: Path) -> None:
    """Generated text that comes later than the bound is not late: it was not left unread."""
    async with serving(models, send_timeout_s=0.3) as served:
        decoder = served.decoders["tale"]
        decoder.hold(after=1)
        params = generation_pb2.SamplingParams(max_tokens=10, temperature=0.0)
        request = generation_pb2.GenerateRequest(model="tale", text="once", sampling_params=params)
        call = served.generation.Generate(request, timeout=PATIENCE_S)
        assert (await within_patience(call.read())).text
        await asyncio.sleep(0.4)
        decoder.release()
        num_tokens = 0
        while not num_tokens:
            num_tokens = (await within_patience(call.read())).usage.output_tokens
        assert num_tokens == 10


async def test_a_client_behind_a_dead_network_is_found_by_pings(models: Path) -> None:
    """The connection stands without answers: within 1 s and 0.2 s its stream is ended."""
    flags: dict[str, Any] = {"keepalive_time_s": 1.0, "keepalive_timeout_s": 0.2}
    async with serving(models, **flags) as served:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            relaying = asyncio.create_task(asyncio.to_thread(_relay, listener, served))
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            served.sessions["spam"].hold()
            call = stub.ModelInfer(text_request("spam", "lunch"))  # without a deadline
            await eventually(lambda: served.app._admission.num_inside == 1)
            forth, back = await relaying
            await eventually(lambda: served.app._admission.num_inside == 0)
            served.release("spam")
            call.cancel()
            forth.close()
            back.close()
            await channel.close()


async def test_a_client_that_pings_over_a_silent_stream_is_not_cut_off(models: Path) -> None:
    """A client of Triton pings every second for 6.5 s while its stream waits for an answer.

    C-core cuts off at the third ping that comes earlier than it allows, by default in 5 minutes.
    """
    patient, strict = await asyncio.gather(
        _answer_after_silence(models, min_ping_interval_s=0.5),
        _answer_after_silence(models, min_ping_interval_s=60.0),
    )
    assert isinstance(patient, triton.InferResult), patient
    assert "Too many pings" in str(strict)


async def _answer_after_silence(repository: Path, min_ping_interval_s: float) -> object:
    async with serving(repository, min_ping_interval_s=min_ping_interval_s) as served:
        served.sessions["spam"].hold()
        answering = asyncio.create_task(asyncio.to_thread(_ask_with_pings, served.address))
        await asyncio.sleep(6.5)
        served.release("spam")
        return await within_patience(answering)


def _ask_with_pings(address: str) -> object:
    """The answer on a stream of tritonclient, or its error."""
    answers: queue.Queue[object] = queue.Queue()
    with triton.InferenceServerClient(address, keepalive_options=PINGING) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        text = triton.InferInput("text", [1, 1], "BYTES")
        text.set_data_from_numpy(np.array([["lunch"]], object))
        client.async_stream_infer("spam", [text])
        return answers.get(timeout=PATIENCE_S)


def test_every_option_of_the_server_is_one_that_grpc_knows() -> None:
    """An option of another name does nothing, without a word."""
    core: Any = importlib.import_module("grpc._cython.cygrpc")
    library = Path(core.__file__).read_bytes()
    unknown = [name for name, _ in server_options(Settings()) if name.encode() not in library]
    assert not unknown


def _relay(listener: socket.socket, served: Served) -> tuple[socket.socket, socket.socket]:
    """Carry what both sides say until a request is inside, and then nothing any more."""
    back, _ = listener.accept()
    forth = socket.create_connection(("127.0.0.1", served.app.grpc_port))
    back.settimeout(0.01)
    forth.settimeout(0.01)
    while not served.app._admission.num_inside:
        for source, sink in ((back, forth), (forth, back)):
            with suppress(TimeoutError):
                sink.sendall(source.recv(65_536))
    return forth, back


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_ipv6_addresses_are_taken_with_brackets_and_without(models: Path, host: str) -> None:
    async with serving(models, host=host, metrics_host=host) as served:
        async with grpc.aio.insecure_channel(f"[::1]:{served.app.grpc_port}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            response = await stub.ModelInfer(simple_request(), timeout=PATIENCE_S)
        assert np.frombuffer(response.raw_output_contents[0], "<i4").tolist() == [5] * 16
        _, writer = await asyncio.open_connection("::1", served.app.metrics_port)
        writer.close()


async def test_a_connection_beyond_its_age_is_renewed_without_a_lost_call(models: Path) -> None:
    """A second old: its client connects anew and goes on; what it had open ends after the grace."""
    async with serving(models, max_connection_age_s=1.0, connection_grace_s=0.5) as served:
        stream = served.inference.ModelStreamInfer()
        await stream.write(text_request("spam", "lunch"))
        await stream.read()
        started_s = time.monotonic()
        while time.monotonic() - started_s < 2.5:
            await served.infer_text("spam", "lunch", wait_for_ready=True)
            await asyncio.sleep(0.01)
        code, _ = await refusal(stream.read())
        assert code is StatusCode.UNAVAILABLE


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))  # SETTINGS
INFER = "/inference.GRPCInferenceService/ModelInfer"


def half_a_call(message: bytes) -> bytes:
    """The frames of a connection with one call, whose message is cut in its middle."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": INFER,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(  # each as a literal, RFC 7541, 6.2.2
        b"\0" + bytes((len(name),)) + name.encode() + bytes((len(value),)) + value.encode()
        for name, value in headers.items()
    )
    data = b"\0" + len(message).to_bytes(4) + message[: len(message) // 2]
    opened = len(block).to_bytes(3) + b"\x01\x04" + (1).to_bytes(4) + block
    return PREFACE + opened + len(data).to_bytes(3) + b"\0\0" + (1).to_bytes(4) + data


async def test_a_probe_whose_message_does_not_come_takes_no_place(models: Path) -> None:
    """Its message may take longer than any other call's, and one of 300 kB is read all the same."""
    async with serving(models, receive_timeout_s=1.0, max_concurrent_rpcs=1) as served:
        live = "/inference.GRPCInferenceService/ServerLive"
        as_stream: Any = served.channel.stream_unary(live)
        late = as_stream(timeout=1.5)
        assert await refusal(late) == (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        late = as_stream(timeout=PATIENCE_S)
        await served.infer_text("spam", "lunch")
        await eventually(lambda: served.app._rpc.num_calls == 0)
        late.cancel()
        as_bytes: Any = served.channel.unary_unary(live)
        assert (await as_bytes(b"")) == b"\x08\x01"
        unknown = b"\x12\xe0\xa7\x12" + bytes(300_000)  # a field that later versions may have
        assert (await as_bytes(unknown)) == b"\x08\x01"


async def test_a_call_whose_message_does_not_come_ends_and_gives_its_place_back(
    models: Path,
) -> None:
    """None at all, half of one, and a call that says it has none; a stream may wait for longer."""
    async with serving(models, receive_timeout_s=0.3) as served:
        stream = served.inference.ModelStreamInfer(timeout=PATIENCE_S)
        await stream.write(simple_request())
        assert (await within_patience(stream.read())).infer_response.outputs
        as_stream: Any = served.channel.stream_unary(INFER)
        late = (
            StatusCode.DEADLINE_EXCEEDED,
            "the message was not there after 0.3 s, which is the limit",
        )
        assert await refusal(as_stream()) == late
        generate: Any = served.channel.stream_stream("/attendant.v1.GenerationService/Generate")
        assert await refusal(generate().read()) == late
        none = StatusCode.INVALID_ARGUMENT, "the call has no message"
        assert await refusal(as_stream(iter(()))) == none
        numbers = served.app._rpc
        _, writer = await asyncio.open_connection("127.0.0.1", served.app.grpc_port)
        writer.write(half_a_call(simple_request().SerializeToString()))
        await eventually(lambda: numbers.num_calls == 2)
        await eventually(lambda: numbers.num_calls == 1)  # the stream's
        writer.close()
        await stream.write(simple_request())
        assert (await within_patience(stream.read())).infer_response.outputs
        stream.cancel()


SETTINGS, HEADERS, CONTINUATION = 4, 1, 9  # types of frames
NUM_FRAMES = 40


def frame(kind: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, 0)) + stream.to_bytes(4, "big") + payload


def pair(name: bytes, value: bytes) -> bytes:
    """A header as HPACK writes one literally."""
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


async def test_headers_without_end_hold_up_no_other_call(models: Path) -> None:
    """A client sends 160,000 headers in frames of CONTINUATION, and leaves before their end.

    gRPC hands the call out with all of them. Made to tuples, 508,000 took the event loop a second,
    and 20 such clients 5.8 s, in which nothing was answered.
    """
    bound = metadata_bound()
    assert bound is cygrpc._Metadatum, "gRPC makes metadata in another way than by this name"
    async with serving(models) as served:
        num_cut_off = bound.num_cut_off
        (entered,) = (door.num_entered for door in served.app._rpc._doors)
        head = b"\x83\x86" + pair(b":path", b"/grpc.health.v1.Health/Check")
        head += pair(b":authority", b"x") + pair(b"content-type", b"application/grpc")
        head += pair(b"te", b"trailers")
        many = frame(CONTINUATION, 1, pair(b"a", b"") * 4_000)
        reader, writer = await asyncio.open_connection("127.0.0.1", served.app.grpc_port)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0))
        writer.write(frame(HEADERS, 1, head) + many * NUM_FRAMES)
        writer.write_eof()
        await within_patience(reader.read())
        await eventually(lambda: bound.num_cut_off > num_cut_off)
        writer.close()
        (now_entered,) = (door.num_entered for door in served.app._rpc._doors)
        assert now_entered == entered
        assert await check_health(served.channel) == health_pb2.HealthCheckResponse.SERVING


async def test_metadata_of_many_calls_is_never_too_much(models: Path) -> None:
    """Each begins to count anew: 200 at once, with 8 kB each."""
    async with serving(models) as served:
        metadata = [(f"x-{number}", "v" * 1_000) for number in range(8)]
        calls = [
            served.inference.ModelInfer(simple_request(), metadata=metadata) for _ in range(200)
        ]
        answered = await within_patience(asyncio.gather(*calls))
    assert all(each.outputs for each in answered)
