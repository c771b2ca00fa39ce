"""Cancellation, deadlines, overload, a model that raises, a model that cannot be loaded."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import text_pb2, text_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient import grpc as triton
from tritonclient.grpc import aio

from tests.e2e.calls import LIMIT_S, code_of, slow_inputs, tensor_inputs
from tests.e2e.conftest import MAX_QUEUE_REQUESTS
from tests.e2e.graphs import TABLE_SIZE
from tests.e2e.server import ServerProcess, within

LONG_TEXT = "free " * 62  # 64 tokens, with which `slow-text` takes long
AT_ONCE_S = 5.0  # an answer that waits for nothing, on cores that are busy with other tests
WAITING, RUNNING = "attendant_requests_waiting", "attendant_requests_running"
FAILED = "nv_inference_request_failure"


class SlowModel:
    """The model `slow` of one server, and how to keep it busy."""

    def __init__(
        self, server: ServerProcess, client: aio.InferenceServerClient, long_iterations: int
    ) -> None:
        self._server = server
        self._client = client
        self._long_iterations = long_iterations

    async def ask(self, tag: int, iterations: int = 1, timeout_s: float = LIMIT_S) -> int:
        reply = await self._client.infer(
            "slow", slow_inputs(iterations, tag), client_timeout=timeout_s
        )
        return int(reply.as_numpy("answer")[0])

    async def occupy(self, num_waiting: int) -> list[asyncio.Task[int]]:
        """One long request in the session, then others behind it; each returns its index."""
        tasks = [asyncio.create_task(self.ask(0, self._long_iterations))]
        await self.wait_for(RUNNING, 1)
        for tag in range(1, num_waiting + 1):
            tasks.append(asyncio.create_task(self.ask(tag)))
            await self.wait_for(WAITING, tag)
        return tasks

    async def wait_for(self, metric: str, value: float) -> None:
        await asyncio.to_thread(self._server.wait_for, metric, "slow", value)


@asynccontextmanager
async def slow_model(server: ServerProcess, long_iterations: int) -> AsyncIterator[SlowModel]:
    async with aio.InferenceServerClient(server.address) as client:
        yield SlowModel(server, client, long_iterations)


async def test_overload_refuses_at_the_limit_and_recovers(
    hurt_server: ServerProcess, long_iterations: int
) -> None:
    """One runs, two wait, five more are refused at once; then all is as before."""
    failed_before = hurt_server.metric(FAILED, "slow")
    async with slow_model(hurt_server, long_iterations) as slow:
        admitted = await slow.occupy(MAX_QUEUE_REQUESTS)
        with within(AT_ONCE_S):
            refused = await asyncio.gather(*(slow.ask(9) for _ in range(5)), return_exceptions=True)
        assert not admitted[0].done(), "the refusals waited for the request that runs"
        for error in refused:
            assert isinstance(error, triton.InferenceServerException)
            assert code_of(error) == "UNAVAILABLE"
            assert "Exceeds maximum queue size" in str(error.message())
        assert await asyncio.gather(*admitted) == [0, 1, 2]
        assert await slow.ask(7) == 7
    assert hurt_server.metric(FAILED, "slow") == failed_before + 5


def test_typed_api_says_exhausted_and_when_to_come_back(hurt_server: ServerProcess) -> None:
    """The same limit on attendant.v1: RESOURCE_EXHAUSTED, and a hint in the metadata."""
    long = text_pb2.ClassifyRequest(model="slow-text", texts=[LONG_TEXT])
    short = text_pb2.ClassifyRequest(model="slow-text", texts=["a"])
    with grpc.insecure_channel(hurt_server.address) as channel:
        stub: Any = text_pb2_grpc.TextServiceStub(channel)
        admitted = [stub.Classify.future(long, timeout=LIMIT_S)]
        hurt_server.wait_for(RUNNING, "slow-text", 1)
        for count in range(1, MAX_QUEUE_REQUESTS + 1):
            admitted.append(stub.Classify.future(short, timeout=LIMIT_S))
            hurt_server.wait_for(WAITING, "slow-text", count)
        with within(AT_ONCE_S), pytest.raises(grpc.RpcError) as refused:
            stub.Classify(short, timeout=LIMIT_S)
        assert not admitted[0].done()
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        hints = {entry.key: entry.value for entry in refused.value.trailing_metadata()}
        assert str(hints["grpc-retry-pushback-ms"]) == "100"
        counts = [call.result(LIMIT_S).num_tokens for call in admitted]
    assert counts == [64, 3, 3]


async def test_cancelled_request_leaves_the_queue_at_once(
    server: ServerProcess, long_iterations: int
) -> None:
    """Of one running and three waiting, the second waiting one is cancelled; the rest answer."""
    cancelled_before = server.metric(FAILED, "slow")
    async with slow_model(server, long_iterations) as slow:
        tasks = await slow.occupy(3)
        tasks.pop(2).cancel()
        await slow.wait_for(WAITING, 2)
        assert not tasks[0].done(), "it left only when its turn came"
        assert await asyncio.gather(*tasks) == [0, 1, 3]
    assert server.metric(FAILED, "slow") == cancelled_before + 1


async def test_cancelling_what_runs_disturbs_nobody(
    server: ServerProcess, long_iterations: int
) -> None:
    async with slow_model(server, long_iterations) as slow:
        running, *waiting = await slow.occupy(2)
        running.cancel()
        assert await asyncio.gather(*waiting) == [1, 2]
        await slow.wait_for(RUNNING, 0)
        assert await slow.ask(5) == 5


def test_synchronous_client_can_cancel_too(server: ServerProcess, long_iterations: int) -> None:
    """`async_infer` of tritonclient: its context cancels the call, the callback hears of it."""
    with triton.InferenceServerClient(server.address) as client:
        before = server.metric(FAILED, "slow")
        heard: list[Any] = []
        call = client.async_infer(
            "slow",
            slow_inputs(long_iterations, 1),
            callback=lambda result, error: heard.append(error or result),
            client_timeout=LIMIT_S,
        )
        server.wait_for(RUNNING, "slow", 1)
        call.cancel()
        server.wait_for(FAILED, "slow", before + 1)
        server.wait_for(RUNNING, "slow", 0)
        reply = client.infer("slow", slow_inputs(1, 2), client_timeout=LIMIT_S)
    assert reply.as_numpy("answer")[0] == 2


async def test_deadline_ends_a_request_that_waits(
    server: ServerProcess, long_iterations: int
) -> None:
    """0.1 s behind a request of a second: DEADLINE_EXCEEDED while that still runs."""
    async with slow_model(server, long_iterations) as slow:
        (running,) = await slow.occupy(0)
        started_s = time.monotonic()
        with pytest.raises(triton.InferenceServerException) as ended:
            await slow.ask(1, timeout_s=0.1)
        assert code_of(ended.value) == "DEADLINE_EXCEEDED"
        assert 0.05 < time.monotonic() - started_s < AT_ONCE_S
        await slow.wait_for(WAITING, 0)
        assert not running.done(), "the queue kept it until its turn"
        assert await running == 0


def test_deadline_ends_a_typed_request_too(hurt_server: ServerProcess) -> None:
    long = text_pb2.ClassifyRequest(model="slow-text", texts=[LONG_TEXT])
    with grpc.insecure_channel(hurt_server.address) as channel:
        stub: Any = text_pb2_grpc.TextServiceStub(channel)
        running = stub.Classify.future(long, timeout=LIMIT_S)
        hurt_server.wait_for(RUNNING, "slow-text", 1)
        with pytest.raises(grpc.RpcError) as ended:
            stub.Classify(text_pb2.ClassifyRequest(model="slow-text", texts=["a"]), timeout=0.1)
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        hurt_server.wait_for(WAITING, "slow-text", 0)
        assert running.result(LIMIT_S).num_tokens == 64


async def test_model_that_raises_fails_only_the_request_at_fault(server: ServerProcess) -> None:
    """Every fourth of 32 concurrent requests asks for an index that the table has not."""
    async with aio.InferenceServerClient(server.address) as client:
        indices = [n % TABLE_SIZE if n % 4 else 99 for n in range(32)]
        replies = await asyncio.gather(
            *(
                client.infer(
                    "lookup",
                    tensor_inputs(index=np.array([[index]])),
                    client_timeout=LIMIT_S,
                )
                for index in indices
            ),
            return_exceptions=True,
        )
    for index, reply in zip(indices, replies, strict=True):
        if isinstance(reply, BaseException):
            assert index == 99
            assert code_of(reply) == "INTERNAL"
            assert "indices element out of data bounds" in str(reply)
        else:
            assert reply.as_numpy("square").tolist() == [[index**2]]


def test_broken_model_is_reported_and_the_others_are_served(hurt_server: ServerProcess) -> None:
    """`1/model.onnx` of `broken` is 8 bytes of text."""
    with triton.InferenceServerClient(hurt_server.address) as client:
        assert client.is_server_live()
        assert not client.is_server_ready(), "strict readiness is the default"
        assert not client.is_model_ready("broken")
        assert client.is_model_ready("add-sub")
        ones = np.ones((1, 16), np.int32)
        reply = client.infer("add-sub", tensor_inputs(INPUT0=ones, INPUT1=ones))
        assert reply.as_numpy("OUTPUT0").tolist() == [[2] * 16]
        with pytest.raises(triton.InferenceServerException) as refused:
            client.infer("broken", tensor_inputs(INPUT0=ones))
        assert code_of(refused.value) == "NOT_FOUND"
        assert "'broken' has no available versions" in str(refused.value.message())
    log = " ".join(hurt_server.log().split())
    assert "failed to load 'broken': model.onnx:" in log


def test_health_of_a_broken_model_is_not_serving(hurt_server: ServerProcess) -> None:
    """Nor is the whole, under strict readiness; the other models are."""
    expected = {
        "": health_pb2.HealthCheckResponse.NOT_SERVING,
        "broken": health_pb2.HealthCheckResponse.NOT_SERVING,
        "add-sub": health_pb2.HealthCheckResponse.SERVING,
    }
    with grpc.insecure_channel(hurt_server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name, status in expected.items():
            request = health_pb2.HealthCheckRequest(service=name)
            assert health.Check(request, timeout=LIMIT_S).status == status
