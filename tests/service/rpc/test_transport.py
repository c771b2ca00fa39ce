"""What bounds calls and their bytes, in both directions."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from attendant.v1 import text_pb2
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from service.api.admission import Admission, message_bytes
from service.rpc.messages import LongReader, Unread
from service.settings import Settings
from tests.fakes.serving import (
    check_health,
    echo_request,
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
        assert not threads_for("long answers") - others, "those of servers before may end meanwhile"
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
        assert await check_health(served.channel) == health_pb2.HealthCheckResponse.SERVING
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

    async def call(reader: LongReader) -> tuple[object, int]:
        return await reader.finish(Unread(b"x" * 1_000)), message_bytes.get()

    with ThreadPoolExecutor(1) as thread:
        calling = asyncio.create_task(call(LongReader(read, admission, thread)))
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
            await check_health(
                served.channel
            )  # on the same connection, so behind all cancellations
        await eventually(lambda: served.app._admission.num_inside == 0)
        await eventually(lambda: served.app._admission.num_bytes == 0)
        answers = await asyncio.gather(*(served.infer_text("spam", "lunch") for _ in range(40)))
        assert all(answer.outputs for answer in answers)
