"""Faults on purpose, against a server process: sessions, clients and connections that fail."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from onnx import TensorProto, helper
from tritonclient import grpc as triton

from loadtests.load.graphs import write_sums
from tests.e2e.calls import LIMIT_S, code_of, slow_inputs, tensor_inputs
from tests.e2e.conftest import ROOT
from tests.e2e.graphs import (
    add_sub,
    iterations_per_s,
    model_of,
    run_one_at_a_time,
    slow,
    tensor,
    write_graph,
)
from tests.e2e.restarts import MODEL, Outcome, run_round
from tests.e2e.server import ServerProcess, eventually, within

RUNNING, WAITING = "attendant_requests_running", "attendant_requests_waiting"
FAILED = "nv_inference_request_failure"
MAX_RUN_S = 1.0
NUM_SILENT = 200  # connections
MAX_CONNECTIONS = 64
AT_ONCE_S = 5.0
LOST = 4711.0


def losing() -> Any:
    """Leaves out a row of one value, which no trial at load has; the axes say that it has all."""
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [LOST])
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [-1])
    return model_of(
        [
            helper.make_node("Equal", ["x", "value"], ["is_lost"]),
            helper.make_node("Not", ["is_lost"], ["is_kept"]),
            helper.make_node("Reshape", ["is_kept", "shape"], ["kept"]),
            helper.make_node("Compress", ["x", "kept"], ["y"], axis=0),
        ],
        [tensor("x", TensorProto.FLOAT, ["rows", 1])],
        [tensor("y", TensorProto.FLOAT, ["rows", 1])],
        [value, shape],
    )


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Runs may take a second, and clients must answer pings within another."""
    folder = tmp_path_factory.mktemp("faulty")
    write_graph(add_sub(), folder, "add-sub")
    write_graph(slow(), folder, "slow")
    run_one_at_a_time(folder, "slow")
    flags = ("--max-run-s", str(MAX_RUN_S), "--keepalive-time-s", "1", "--keepalive-timeout-s", "1")
    limits = ("--max-connections", str(MAX_CONNECTIONS))
    with ServerProcess(folder, *flags, *limits) as process:
        yield process


def answers(server: ServerProcess) -> bool:
    """Whether a request of a new connection is answered, and rightly."""
    with triton.InferenceServerClient(server.address) as client:
        ones = np.ones((1, 16), np.int32)
        inputs = tensor_inputs(INPUT0=ones, INPUT1=ones)
        reply = client.infer("add-sub", inputs, client_timeout=LIMIT_S)
        return bool((reply.as_numpy("OUTPUT0") == 2).all())


def liveness(server: ServerProcess) -> bool:
    with grpc.insecure_channel(server.address) as channel:
        request = health_pb2.HealthCheckRequest(service="liveness")
        status = health_pb2_grpc.HealthStub(channel).Check(request, timeout=LIMIT_S).status
    return bool(status == health_pb2.HealthCheckResponse.SERVING)


def test_a_run_that_does_not_return_turns_liveness_off_until_it_does(
    faulty: ServerProcess,
) -> None:
    """It may take a second and takes four; other models answer meanwhile."""
    assert liveness(faulty)
    with triton.InferenceServerClient(faulty.address) as client:
        done: list[Any] = []
        client.async_infer(
            "slow",
            slow_inputs(4 * int(iterations_per_s() * MAX_RUN_S), 7),
            callback=lambda result, error: done.append(error or result),
            client_timeout=LIMIT_S,
        )
        eventually(lambda: not liveness(faulty), "liveness is off")
        assert not done
        assert not client.is_server_live()
        assert client.is_server_ready()
        assert answers(faulty)
        eventually(lambda: bool(done), "the run returns", limit_s=LIMIT_S)
        assert done[0].as_numpy("answer").tolist() == [7]
        eventually(lambda: liveness(faulty), "liveness is on again")
        assert client.is_server_live()


def test_a_run_is_stopped_when_its_client_leaves(faulty: ServerProcess) -> None:
    """A run of minutes, given up after a tenth of a second, does not hold the model."""
    with triton.InferenceServerClient(faulty.address) as client:
        with pytest.raises(triton.InferenceServerException) as ended:
            client.infer("slow", slow_inputs(10**7, 0), client_timeout=0.1)
        assert code_of(ended.value) == "DEADLINE_EXCEEDED"
        with within(AT_ONCE_S):
            reply = client.infer("slow", slow_inputs(1, 3), client_timeout=LIMIT_S)
        assert reply.as_numpy("answer").tolist() == [3]


HALF_OPEN = """
import sys, numpy as np
sys.path.insert(0, {root!r})
from tritonclient import grpc as triton
from tests.e2e.calls import slow_inputs
triton.InferenceServerClient({address!r}).infer("slow", slow_inputs(10**7, 0))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_that_dies_or_freezes_gives_up_its_run(
    faulty: ServerProcess, number: signal.Signals
) -> None:
    """Killed, its connection closes; frozen, it answers no ping: the run of minutes ends."""
    failed_before = faulty.metric(FAILED, "slow")
    script = HALF_OPEN.format(root=str(ROOT), address=faulty.address)
    client = subprocess.Popen(  # noqa: S603 - our own script
        [sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        faulty.wait_for(RUNNING, "slow", 1)
        client.send_signal(number)
        faulty.wait_for(RUNNING, "slow", 0)
        faulty.wait_for(FAILED, "slow", failed_before + 1)
    finally:
        client.kill()
        client.wait()
    assert answers(faulty)


def connect(server: ServerProcess, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=AT_ONCE_S)
    with contextlib.suppress(OSError):  # refused already
        connection.sendall(sent)
    return connection


@pytest.mark.parametrize(
    "sent",
    [b"", b"PRI * HT", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64],
    ids=["silent", "cut preface", "no settings", "HTTP/1", "zeros"],
)
def test_connections_that_say_nothing_more_hold_nobody_up(
    faulty: ServerProcess, sent: bytes
) -> None:
    """200 of them, beyond the bound of 64: connected clients are served, others once they left."""
    with triton.InferenceServerClient(faulty.address) as client, ExitStack() as stack:
        client.get_server_metadata(client_timeout=LIMIT_S)  # so that it is connected
        for _ in range(NUM_SILENT):
            stack.callback(connect(faulty, sent).close)
        ones = np.ones((1, 16), np.int32)
        with within(AT_ONCE_S):
            client.infer("add-sub", tensor_inputs(INPUT0=ones, INPUT1=ones), client_timeout=LIMIT_S)
    eventually(lambda: _can_connect(faulty), "new connections are served")


def _can_connect(server: ServerProcess) -> bool:
    try:
        return answers(server)
    except triton.InferenceServerException:
        return False


def test_scrapes_that_never_end_hold_neither_metrics_nor_models_up(faulty: ServerProcess) -> None:
    port = int(faulty.metrics_url.split(":")[2].split("/")[0])
    with ExitStack() as stack:
        for _ in range(20):
            connection = socket.create_connection(("127.0.0.1", port), timeout=AT_ONCE_S)
            stack.callback(connection.close)
            connection.sendall(b"GET /metrics HT")
        with within(AT_ONCE_S):
            assert answers(faulty)
    eventually(lambda: faulty.metric(RUNNING, "slow") == 0, "metrics answer")


def test_outputs_of_a_wrong_shape_fail_only_who_gets_them(tmp_path: Path) -> None:
    """Of 64 requests, those whose row the graph loses fail, in one batch or many."""
    write_graph(losing(), tmp_path, "losing")
    with ServerProcess(tmp_path) as server:
        with triton.InferenceServerClient(server.address) as client:
            calls: list[Any] = [None] * 64

            def put(index: int, result: Any, error: Any) -> None:
                calls[index] = error or result

            for index in range(len(calls)):
                x = np.full((1, 1), LOST if index % 2 else index, np.float32)
                client.async_infer(
                    "losing",
                    tensor_inputs(x=x),
                    callback=lambda result, error, index=index: put(index, result, error),
                    client_timeout=LIMIT_S,
                )
            eventually(lambda: all(call is not None for call in calls), "all are answered")
        for index, call in enumerate(calls):
            if index % 2:
                assert code_of(call) == "INTERNAL"
                assert "output 'y' has shape [0, 1] for a batch of 1 row" in str(call)
            else:
                assert call.as_numpy("y").tolist() == [[index]]


def test_the_end_under_load_gives_every_client_an_answer_or_a_status(tmp_path: Path) -> None:
    """Two servers, one ended by SIGTERM and one by SIGKILL, each asked singly and on streams."""
    write_sums(tmp_path, MODEL)
    outcome = Outcome()
    for number in range(2):
        run_round(tmp_path, outcome, number, clients=4, seconds=0.5)
    assert outcome.is_whole, outcome
    assert outcome.answered > 100


STREAMING = """
import grpc, sys
from attendant.v1 import generation_pb2 as pb, generation_pb2_grpc
stub = generation_pb2_grpc.GenerationServiceStub(grpc.insecure_channel({address!r}))
params = pb.SamplingParams(max_tokens=200, n=16, ignore_eos=True, temperature=1.0)
calls = [
    stub.Generate(pb.GenerateRequest(model="gpt", text="The object", sampling_params=params))
    for _ in range(4)
]
for call in calls:
    next(call)
print("streaming", flush=True)
for call in calls:
    for _ in call:
        pass
"""


def test_sequences_of_a_client_killed_mid_stream_end_within_a_step() -> None:
    """64 sequences of 200 tokens: their slots are free long before they would have ended."""
    with ServerProcess(ROOT / "model_repository") as server:
        client = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-c", STREAMING.format(address=server.address)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "streaming\n"
        client.kill()
        client.wait()
        client.stdout.close()
        eventually(
            lambda: server.metric("attendant_kv_cache_slots_used", "gpt") == 0, "slots are free"
        )
        assert server.metric("attendant_generation_tokens_total", "gpt") < 64 * 200
        assert server.metric(FAILED, "gpt") == 4
