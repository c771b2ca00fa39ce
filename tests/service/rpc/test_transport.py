"""What bounds a connection, a call and its bytes; what a client's silence may cost."""

import asyncio
import importlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import generation_pb2, text_pb2
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from service.api.admission import Admission, message_bytes
from service.rpc.door import _LongReader, _Unread
from service.rpc.server import server_options
from service.settings import Settings
from tests.fakes.serving import (
    Served,
    eventually,
    refusal,
    refused_calls,
    serving,
    simple_request,
    text_request,
    within_patience,
)
from tests.fakes.sessions import PATIENCE_S, FakeSessions, write_model
from tests.fakes.slow_network import UNLIMITED, SlowNetwork, wide_request, wide_session

SILENT_CONNECTIONS = 200
PINGING = triton.KeepAliveOptions(
    keepalive_time_ms=1_000, keepalive_permit_without_calls=True, http2_max_pings_without_data=0
)


def echo_request(num_bytes: int) -> pb.ModelInferRequest:
    """About so large, and as large an answer."""
    request = pb.ModelInferRequest(model_name="strings")
    request.inputs.add(name="IN", datatype="BYTES", shape=[1, 1])
    request.inputs[0].contents.bytes_contents.append(b"x" * num_bytes)
    return request


async def check(served: Served) -> int:
    stub = health_pb2_grpc.HealthStub(served.channel)
    return int((await stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)).status)


async def test_bytes_in_flight_are_bounded_and_come_back(models: Path) -> None:
    """10 kB: of two calls of 6 kB the second is refused, on every service in its own words."""
    async with serving(models, max_bytes_in_flight=10_000) as served:
        served.sessions["strings"].hold()
        first = asyncio.create_task(
            within_patience(served.inference.ModelInfer(echo_request(6_000)))
        )
        await eventually(lambda: served.num_running("strings") == 1)
        text = "Exceeds maximum of 10000 bytes in flight"
        second = served.inference.ModelInfer(echo_request(6_000))
        assert await refusal(second) == (StatusCode.UNAVAILABLE, text)
        typed = served.text.Classify(text_pb2.ClassifyRequest(model="spam", texts=["x" * 6_000]))
        assert await refusal(typed) == (StatusCode.RESOURCE_EXHAUSTED, text)
        streamed = served.inference.ModelStreamInfer(iter([echo_request(6_000), simple_request()]))
        error = await within_patience(streamed.read())
        assert error.error_message == text
        assert (await within_patience(streamed.read())).infer_response.outputs
        assert (await served.infer_text("spam", "lunch")).outputs  # small enough
        served.release("strings")
        assert (await first).outputs
        assert (await within_patience(served.inference.ModelInfer(echo_request(6_000)))).outputs
        await eventually(lambda: served.app._admission.num_bytes == 0)


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_compressed_message_is_inflated_within_the_bound(
    models: Path, algorithm: grpc.Compression
) -> None:
    """64 MiB are sent as 64 kB: inflated by gRPC, they would be there before they are refused."""
    async with serving(models, max_message_bytes=2**20) as served:
        infer = partial(served.inference.ModelInfer, compression=algorithm)
        assert (await within_patience(infer(echo_request(100_000)))).outputs
        assert await refusal(infer(echo_request(2**26))) == (
            StatusCode.INVALID_ARGUMENT,
            "the message has more than 1048576 bytes once it is inflated",
        )


def threads_for(work: str) -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith(work)}


async def test_what_takes_its_time_to_read_is_read_beside_the_event_loop(models: Path) -> None:
    """What has more than 256 KiB, or may once it is inflated; whatever it turns out to be."""
    async with serving(models) as served:
        others = threads_for("long messages")
        assert (await within_patience(served.inference.ModelInfer(echo_request(200_000)))).outputs
        assert threads_for("long messages") == others
        infer = partial(served.inference.ModelInfer, compression=grpc.Compression.Gzip)
        assert (await within_patience(infer(echo_request(300_000)))).outputs
        assert len(threads_for("long messages") - others) == 1
        assert (await within_patience(served.inference.ModelInfer(echo_request(300_000)))).outputs
        assert len(threads_for("long messages") - others) == 1
        path = "/inference.GRPCInferenceService/ModelInfer"
        method: Any = served.channel.unary_unary(path)
        assert await refusal(method(b"\xff" * 300_000)) == (
            StatusCode.INTERNAL,
            "Unable to parse request",
        )
        await eventually(lambda: served.app._admission.num_bytes == 0)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_answer_that_takes_its_time_to_write_is_written_beside_the_event_loop(
    models: Path, is_streamed: bool
) -> None:
    """What has 256 KiB or more of outputs; all such answers on one thread."""
    async with serving(models) as served:

        async def answer_to(num_bytes: int) -> pb.ModelInferResponse:
            request = echo_request(num_bytes)
            if not is_streamed:
                return await within_patience(served.inference.ModelInfer(request))
            stream = served.inference.ModelStreamInfer(iter([request]))
            return (await within_patience(stream.read())).infer_response

        others = threads_for("long answers")
        assert len((await answer_to(200_000)).raw_output_contents[0]) == 200_004
        assert threads_for("long answers") == others
        for _ in range(2):
            assert len((await answer_to(300_000)).raw_output_contents[0]) == 300_004
        assert len(threads_for("long answers") - others) == 1
        await eventually(lambda: served.app._admission.num_bytes == 0)


async def test_answers_that_are_not_read_count_too(repository: Path) -> None:
    """16 MiB each, of 16 MiB in flight: while one is on its way nothing else is admitted."""
    write_model(repository, "wide", config="max_batch_size: 8")
    sessions = FakeSessions(wide=wide_session)
    async with serving(repository, sessions, max_bytes_in_flight=2**24) as served:
        network = SlowNetwork(served.app.grpc_port)
        async with network as port:
            network.can_pass.set()
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", UNLIMITED) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                await channel.channel_ready()
                network.can_pass.clear()
                first = stub.ModelInfer(wide_request(7), timeout=PATIENCE_S)
                admission = served.app._admission
                await eventually(lambda: admission.num_bytes > 2**24)
                second = served.inference.ModelInfer(wide_request(8), timeout=PATIENCE_S)
                text = "Exceeds maximum of 16777216 bytes in flight"
                assert await refusal(second) == (StatusCode.UNAVAILABLE, text)
                network.can_pass.set()
                assert (await first).outputs
                await eventually(lambda: admission.num_bytes == 0)


async def test_a_request_larger_than_the_whole_bound_can_never_succeed(models: Path) -> None:
    async with serving(models, max_bytes_in_flight=10_000) as served:
        request = echo_request(20_000)
        code, text = await refusal(served.inference.ModelInfer(request))
        assert code is StatusCode.INVALID_ARGUMENT
        size = request.ByteSize()
        assert text == f"the request has {size} bytes, the server takes at most 10000 in flight"


async def test_requests_of_one_stream_count_their_own_bytes(models: Path) -> None:
    """Three of 3 kB fit into 10 kB, the fourth does not, and a small one does."""
    async with serving(models, max_bytes_in_flight=10_000) as served:
        served.sessions["strings"].hold()
        requests = [*(echo_request(3_000) for _ in range(4)), simple_request()]
        call = served.inference.ModelStreamInfer(iter(requests))
        await asyncio.to_thread(served.sessions["simple"].wait_for_runs, 1)
        sizes = sum(request.ByteSize() for request in (*requests[:3], requests[4]))
        assert served.app._admission.num_bytes == sizes  # the last waits for its turn
        served.release("strings")
        found = [await within_patience(call.read()) for _ in requests]
        assert [bool(response.error_message) for response in found] == [*[False] * 3, True, False]


async def test_calls_in_flight_are_bounded_and_probes_are_answered_beside_them(
    models: Path,
) -> None:
    """Two calls at once, one of them a stream that asks nothing."""
    async with serving(models, max_concurrent_rpcs=2) as served:
        stream = served.inference.ModelStreamInfer()
        await stream.write(simple_request())
        assert (await within_patience(stream.read())).infer_response.outputs
        running = await served.hold("spam")
        full = StatusCode.RESOURCE_EXHAUSTED, "Exceeds maximum of 2 calls in flight"
        for _ in range(20):
            assert await refusal(served.infer_text("mini", "lunch")) == full
        assert await refusal(served.inference.ModelStreamInfer().read()) == full
        assert await check(served) == health_pb2.HealthCheckResponse.SERVING
        assert (await served.inference.ServerLive(pb.ServerLiveRequest())).live
        assert (await served.inference.ServerReady(pb.ServerReadyRequest())).ready
        assert (await served.inference.ModelReady(pb.ModelReadyRequest(name="spam"))).ready
        served.release("spam")
        await within_patience(running)
        assert (await served.infer_text("mini", "lunch")).outputs
        stream.cancel()


async def test_refused_calls_are_counted_by_the_bound_that_they_reach(models: Path) -> None:
    """Four of 6 kB where 10 kB may be in flight, a call too many, a stream that a drain ends."""
    async with serving(models, max_bytes_in_flight=10_000, max_concurrent_rpcs=3) as served:
        held = served.sessions["strings"]
        held.hold()
        first = asyncio.create_task(
            within_patience(served.inference.ModelInfer(echo_request(6_000)))
        )
        await eventually(lambda: served.num_running("strings") == 1)
        for _ in range(3):
            await refusal(served.inference.ModelInfer(echo_request(6_000)))
        stream = served.inference.ModelStreamInfer()
        await stream.write(echo_request(6_000))
        assert (await within_patience(stream.read())).error_message
        assert await refused_calls(served) == {"bytes": 4}
        other = await served.hold("spam")
        await refusal(served.infer_text("mini", "lunch"))
        assert await refused_calls(served) == {"bytes": 4, "calls": 1}
        served.release("spam")
        await other
        draining = asyncio.create_task(served.app._admission.drain(PATIENCE_S))
        await eventually(lambda: served.app._admission.is_draining)
        assert await refused_calls(served) == {"bytes": 4, "calls": 1, "draining": 1}
        served.release("strings")
        await within_patience(draining)
        assert (await first).outputs
        stream.cancel()


async def test_a_long_message_counts_while_it_is_read_and_then_as_what_it_became() -> None:
    """1,000 bytes that become 5,000: until admission only this bound counts them."""
    admission, can_read = Admission(Settings()), threading.Event()

    def read(message: bytes) -> tuple[object, int]:
        assert can_read.wait(PATIENCE_S)
        return "what it says", 5 * len(message)

    async def call(reader: _LongReader) -> tuple[object, int]:
        return await reader.finish(_Unread(b"x" * 1_000)), message_bytes.get()

    with ThreadPoolExecutor(1) as thread:
        calling = asyncio.create_task(call(_LongReader(read, admission, thread)))
        await eventually(lambda: admission.num_bytes == 1_000)
        can_read.set()
        assert await within_patience(calling) == ("what it says", 5_000)
        await eventually(lambda: admission.num_bytes == 0)


async def test_a_compressed_message_counts_with_what_it_became(models: Path) -> None:
    """300 kB, of which some hundred bytes were sent."""
    async with serving(models) as served:
        served.sessions["strings"].hold()
        request = echo_request(300_000)
        infer = partial(served.inference.ModelInfer, compression=grpc.Compression.Gzip)
        call = asyncio.create_task(within_patience(infer(request)))
        await eventually(lambda: served.num_running("strings") == 1)
        assert served.app._admission.num_bytes == request.ByteSize()
        served.release("strings")
        assert (await call).outputs


async def test_answers_of_a_stream_count_only_until_each_is_written(models: Path) -> None:
    """The stream goes on, and holds nothing between two requests."""
    async with serving(models) as served:
        stream = served.inference.ModelStreamInfer()
        for _ in range(3):
            await stream.write(echo_request(6_000))
            assert (await within_patience(stream.read())).infer_response.outputs
            await eventually(lambda: served.app._admission.num_bytes == 0)
        stream.cancel()


async def test_calls_that_are_cancelled_at_once_give_their_places_back(models: Path) -> None:
    """2,000 of them, 20 at a time, where 40 have room; then 40 are answered together."""
    async with serving(models, max_concurrent_rpcs=40) as served:

        async def ask_and_leave(delay_s: float) -> None:
            call = served.inference.ModelInfer(text_request("spam", "lunch"))
            await asyncio.sleep(delay_s)
            call.cancel()
            with suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await call

        for _ in range(100):
            delays_s = (number % 5 * 1e-4 for number in range(20))
            await asyncio.gather(*map(ask_and_leave, delays_s))
            await check(served)  # on the same connection, so behind all cancellations
        await eventually(lambda: served.app._admission.num_inside == 0)
        await eventually(lambda: served.app._admission.num_bytes == 0)
        answers = await asyncio.gather(*(served.infer_text("spam", "lunch") for _ in range(40)))
        assert all(answer.outputs for answer in answers)


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
        await check(served)
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
        assert await check(served)
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
