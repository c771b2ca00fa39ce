"""Two processes of `attendant serve --processes 2`, which everybody takes for one server."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.e2e.calls import LIMIT_S, slow_inputs, tensor_inputs
from tests.e2e.graphs import add_sub, run_one_at_a_time, slow, write_graph
from tests.e2e.server import ServerProcess, eventually

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="each process has a processor of its own"
)
NUM_CONNECTIONS = 12  # all at one of two processes once in 2,048 times
ONES = np.ones((1, 16), np.int32)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_graph(add_sub(), folder, "add-sub")
    write_graph(slow(), folder, "slow")
    run_one_at_a_time(folder, "slow")
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[ServerProcess]:
    flags = ("--http-port", "0", "--model-control-mode", "explicit", "--load-models", "*")
    with ServerProcess(models, "--processes", "2", *flags) as process:
        yield process


def connections(server: ServerProcess) -> Iterator[triton.InferenceServerClient]:
    """Clients of which each has a connection of its own, and so its process."""
    for number in range(NUM_CONNECTIONS):
        own = [("grpc.use_local_subchannel_pool", 1), ("attendant.test", number)]
        with triton.InferenceServerClient(server.address, channel_args=own) as client:
            yield client


def ask(client: triton.InferenceServerClient) -> None:
    result = client.infer(
        "add-sub", tensor_inputs(INPUT0=ONES, INPUT1=ONES), client_timeout=LIMIT_S
    )
    assert result.as_numpy("OUTPUT0").tolist() == (2 * ONES).tolist()


def members(server: ServerProcess) -> list[int]:
    """The process ids of both, in the order of their start."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    return sorted(map(int, children.split()))


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_statistics_and_metrics_are_of_both(server: ServerProcess) -> None:
    for client in connections(server):
        ask(client)
    for client in connections(server):  # whichever is asked
        stats = client.get_inference_statistics("add-sub").model_stats
        assert [each.inference_count for each in stats] == [NUM_CONNECTIONS]
    assert server.metric("nv_inference_count", "add-sub") == NUM_CONNECTIONS
    assert server.metrics()["attendant_ready", ""] == 1
    for _ in range(NUM_CONNECTIONS):
        with urlopen(f"http://{server.http_address}/api/live", timeout=LIMIT_S) as page:
            live = json.load(page)
        assert live["requests"]["answered"] == NUM_CONNECTIONS
    with urlopen(f"http://{server.http_address}/metrics", timeout=LIMIT_S) as page:
        assert f'nv_inference_count{{model="add-sub",version="1"}} {NUM_CONNECTIONS}.0' in (
            page.read().decode()
        )


def test_both_have_connections_and_processors_of_their_own(server: ServerProcess) -> None:
    pids = members(server)
    assert len(pids) == 2
    assert not os.sched_getaffinity(pids[0]) & os.sched_getaffinity(pids[1])
    before = list(map(processor_s, pids))
    for client in connections(server):
        for _ in range(50):
            ask(client)
    assert all(after > then for after, then in zip(map(processor_s, pids), before, strict=True))


def test_control_by_one_connection_acts_on_all(server: ServerProcess) -> None:
    for changed in connections(server):
        changed.unload_model("add-sub")
        assert not any(client.is_model_ready("add-sub") for client in connections(server))
        changed.load_model("add-sub")
        for client in connections(server):
            ask(client)


def test_a_load_that_fails_says_why_and_leaves_both_as_they_were(server: ServerProcess) -> None:
    for client in connections(server):
        with pytest.raises(InferenceServerException, match="no-such-model"):
            client.load_model("no-such-model")
        assert {each.name for each in client.get_model_repository_index().models} == {
            "add-sub",
            "slow",
        }


def test_log_settings_hold_in_all(server: ServerProcess) -> None:
    for level, client in enumerate(connections(server)):
        client.update_log_settings({"log_verbose_level": level % 2})
        for other in connections(server):
            settings = other.get_log_settings().settings
            assert settings["log_verbose_level"].uint32_param == level % 2


def test_answers_that_are_due_come_and_the_server_ends_well(models: Path) -> None:
    with ServerProcess(models, "--processes", "2") as server:
        channel = grpc.insecure_channel(server.address)
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        inputs = slow_inputs(iterations=3_000, tag=7)
        request = pb.ModelInferRequest(
            model_name="slow",
            inputs=[each._get_tensor() for each in inputs],
            raw_input_contents=[each._get_content() for each in inputs],
        )
        due = [stub.ModelInfer.future(request, timeout=LIMIT_S) for _ in range(3)]
        eventually(lambda: server.metric("attendant_requests_running", "slow") > 0, "it runs")
        server.send(signal.SIGTERM)
        assert all(call.result().model_name == "slow" for call in due)
        assert server.exit_code() == 0, server.log()
        assert "Fatal" not in server.log()
        channel.close()


def test_a_process_that_dies_ends_the_server_with_an_error(models: Path) -> None:
    with ServerProcess(models, "--processes", "2") as server:
        pids = members(server)
        os.kill(pids[1], signal.SIGKILL)
        assert server.exit_code() == 1
        assert "ended (SIGKILL), and with it the server" in server.log()
        eventually(lambda: not Path(f"/proc/{pids[0]}").exists(), "the other ended, too")


def test_processes_end_when_their_starter_dies(models: Path) -> None:
    with ServerProcess(models, "--processes", "2") as server:
        pids = members(server)
        server.send(signal.SIGKILL)
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "both ended")


def test_a_server_that_cannot_start_says_so_once(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="ended before it was ready"),
        ServerProcess(tmp_path / "nowhere", "--processes", "2") as server,
    ):
        assert server.log().count("nowhere") == 1


def test_probes_of_the_metrics_port_are_of_all(server: ServerProcess) -> None:
    base = server.metrics_url.removesuffix("/metrics")
    with urlopen(f"{base}/v2/health/ready", timeout=LIMIT_S) as answer:  # noqa: S310 - http
        assert json.load(answer) == {"ready": True}
    frozen = members(server)[1]
    os.kill(frozen, signal.SIGSTOP)
    try:
        with (
            pytest.raises(HTTPError) as refused,
            urlopen(f"{base}/v2/health/live", timeout=LIMIT_S),  # noqa: S310 - http
        ):
            pass
        assert "of 2 does not answer" in refused.value.read().decode()
    finally:
        os.kill(frozen, signal.SIGCONT)
