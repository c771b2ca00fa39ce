"""The client's service config of the chart's notes, tried on real gRPC servers on loopback."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from deploy.generate.chart import read_values, render_files

SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.ServingStatus.Value(name) for name in ("SERVING", "NOT_SERVING")
)
DEADLINE_S = 10
Call = Callable[..., bytes]


class Replica:
    """A server that answers `/test/Who` with its own name, and says how it is."""

    def __init__(self, name: str) -> None:
        self._health = health.HealthServicer()
        who: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(
            lambda _request, _context: name.encode()
        )
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("test", {"Who": who}),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def say(self, status: int) -> None:
        self._health.set("", status)

    def stop(self) -> None:
        self._server.stop(0).wait()


NOTES = render_files(read_values("baked-values.yaml"))["NOTES.txt"]


def service_config() -> str:
    """The client's service config that `helm install` prints, as JSON."""
    match = re.search(r"service_config = (\{.+?\n  \})\n", NOTES, re.DOTALL)
    assert match is not None
    return json.dumps(json.loads(match[1]))


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    running = [Replica("first"), Replica("second")]
    yield running
    for one in running:
        one.stop()


@contextmanager
def _caller(replicas: list[Replica]) -> Iterator[Call]:
    options = [("grpc.service_config", service_config())]
    addresses = ",".join(f"127.0.0.1:{one.port}" for one in replicas)
    with grpc.insecure_channel(f"ipv4:{addresses}", options) as channel:
        yield channel.unary_unary("/test/Who")


def _until(call: Call, expected: set[bytes]) -> None:
    """Calls until the last eight of them were answered by these: statuses travel as messages."""
    answers: list[bytes] = []
    for _ in range(10_000):
        answers.append(call(b"", timeout=DEADLINE_S, wait_for_ready=True))
        if len(answers) >= 8 and set(answers[-8:]) == expected:
            return
    pytest.fail(f"the last answers are {answers[-8:]}")


def test_notes_config_goes_round_the_pods_that_say_they_serve(replicas: list[Replica]) -> None:
    """As during `drain.delaySeconds`: a pod that says NOT_SERVING gets no calls, and none fails."""
    for one in replicas:
        one.say(SERVING)
    with _caller(replicas) as call:
        _until(call, {b"first", b"second"})
        replicas[0].say(NOT_SERVING)
        _until(call, {b"second"})
        replicas[0].say(SERVING)
        _until(call, {b"first", b"second"})


def test_notes_name_the_headless_service() -> None:
    assert "dns:///demo-attendant.serving.svc:8001" in NOTES
