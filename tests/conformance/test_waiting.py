"""Deadlines, cancellation and full queues: no client waits for an ended request."""

import asyncio
import queue
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import aio
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.messages import LIMIT_S, Stub
from tests.e2e.calls import slow_inputs
from tests.e2e.graphs import iterations_per_s
from tests.e2e.server import ServerProcess, within

SHORT_S = 0.1
CROWDED = "short_queue"
RUNNING, WAITING = "attendant_requests_running", "attendant_requests_waiting"
MODEL = "custom_identity_int32"  # takes half a second of a core


def inputs() -> list[Any]:
    tensor = triton.InferInput("INPUT0", [1, 1], "INT32")
    tensor.set_data_from_numpy(np.array([[10]], np.int32))
    return [tensor]


def told(errors: queue.Queue[Any]) -> Callable[..., None]:
    """A callback as tritonclient calls it."""
    return lambda result, error: errors.put(error or result)


def still_answers(client: triton.InferenceServerClient) -> bool:
    result = client.infer(MODEL, inputs(), client_timeout=LIMIT_S)
    return bool(result.as_numpy("OUTPUT0").tolist() == [[10]])


def test_a_deadline_ends_a_unary_call(client: triton.InferenceServerClient) -> None:
    with within(LIMIT_S / 2), pytest.raises(triton.InferenceServerException) as caught:
        client.infer(MODEL, inputs(), client_timeout=SHORT_S)
    assert caught.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert "Deadline Exceeded" in caught.value.message()
    assert still_answers(client)


def test_a_deadline_ends_a_stream(client: triton.InferenceServerClient) -> None:
    done: queue.Queue[Any] = queue.Queue()
    client.start_stream(told(done), stream_timeout=SHORT_S)
    client.async_stream_infer(MODEL, inputs())
    assert "Deadline Exceeded" in str(done.get(timeout=LIMIT_S))
    client.stop_stream()
    assert still_answers(client)


def test_a_cancelled_call_ends_at_once(client: triton.InferenceServerClient) -> None:
    done: queue.Queue[Any] = queue.Queue()
    call = client.async_infer(MODEL, inputs(), told(done))
    call.cancel()
    assert "Locally cancelled by application!" in str(done.get(timeout=LIMIT_S))
    assert still_answers(client)


def test_a_cancelled_stream_ends_at_once(client: triton.InferenceServerClient) -> None:
    done: queue.Queue[Any] = queue.Queue()
    client.start_stream(told(done))
    client.async_stream_infer(MODEL, inputs())
    client.stop_stream(cancel_requests=True)
    assert done.get(timeout=LIMIT_S).status() == "StatusCode.CANCELLED"
    assert still_answers(client)


async def test_a_cancelled_task_of_an_aio_client_ends_at_once(
    aio_client: aio.InferenceServerClient,
) -> None:
    task = asyncio.create_task(aio_client.infer(MODEL, inputs()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await aio_client.is_server_live()


def ask(stub: Stub, iterations: int, timeout_us: int = 0) -> grpc.Call:
    """One request to a model of one run at a time and one waiting place."""
    request = pb.ModelInferRequest(model_name=CROWDED)
    for tensor in slow_inputs(iterations, 1):
        request.inputs.append(tensor._get_tensor())
        request.raw_input_contents.append(tensor._get_content())
    request.parameters["timeout"].int64_param = timeout_us
    return stub.ModelInfer.future(request, timeout=LIMIT_S)  # type: ignore[no-any-return]


@pytest.fixture
def running(stub: Stub, server: ServerProcess) -> Iterator[int]:
    """A request under way for two seconds of both cores, and its number of iterations."""
    iterations = iterations_per_s() * 2
    call = ask(stub, iterations)
    server.wait_for(RUNNING, CROWDED, 1)
    yield iterations
    assert said(call) == ("OK", "")


def said(call: grpc.Call) -> tuple[str, str]:
    return call.code().name, call.details() or ""


def test_a_full_queue_refuses_with_the_words_of_triton(
    stub: Stub, server: ServerProcess, running: int
) -> None:
    waiting = ask(stub, 1)
    server.wait_for(WAITING, CROWDED, 1)
    assert said(ask(stub, 1)) == ("UNAVAILABLE", "Exceeds maximum queue size")
    assert said(waiting) == ("OK", "")


def test_a_request_leaves_the_queue_when_its_timeout_has_passed(stub: Stub, running: int) -> None:
    assert said(ask(stub, 1, timeout_us=1_000)) == ("UNAVAILABLE", "Request timeout expired")


def test_health_is_told_while_a_model_is_busy(
    client: triton.InferenceServerClient, running: int
) -> None:
    with within(LIMIT_S / 10):
        assert client.is_server_live()
        assert client.is_server_ready()
