"""A pod that hangs, as after `kill -STOP`: clients that follow the chart's notes lose nothing."""

import ast
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonclient import grpc as triton

from service.settings import Settings
from tests.deploy.test_balancing import NOTES, service_config
from tests.e2e.calls import LIMIT_S, tensor_inputs
from tests.e2e.graphs import add_sub, write_graph
from tests.e2e.server import ServerProcess

Options = dict[str, str | int]
NUM_CALLERS = 20
WARM_S = 1.0
HUNG_S = 1.0  # of a call: the stopped server had it
SPARE_S = 5.0  # for the retry, on a machine that does other things


@pytest.fixture
def options() -> Options:
    """The client's channel options that `helm install` prints."""
    listed = re.search(r"options = (\[.+?\n  \])\n", NOTES, re.DOTALL)
    assert listed is not None
    text = listed[1].replace("json.dumps(service_config)", repr(service_config()))
    return dict(ast.literal_eval(text))


def test_the_server_takes_pings_as_often_as_the_notes_say(options: Options) -> None:
    """With room: pings may arrive closer together than they were sent; three end a connection."""
    assert Settings().min_ping_interval_s * 1e3 <= int(options["grpc.keepalive_time_ms"]) / 2


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[ServerProcess]]:
    write_graph(add_sub(), tmp_path, "add-sub")
    with ServerProcess(tmp_path) as first, ServerProcess(tmp_path) as second:
        yield [first, second]


def test_clients_lose_no_call_when_a_pod_hangs(
    options: Options, servers: list[ServerProcess]
) -> None:
    """20 callers on one channel to two servers, of which one is stopped.

    The slowest call waits for a ping (10 s) and in vain for its answer (3 s), and is then
    answered by the other server.
    """
    limit_s = (
        int(options["grpc.keepalive_time_ms"]) + int(options["grpc.http2.ping_timeout_ms"])
    ) / 1e3
    assert limit_s <= 15
    addresses = "ipv4:" + ",".join(f"127.0.0.1:{one.port}" for one in servers)
    row = np.ones((1, 16), np.int32)
    is_over, is_noticed = threading.Event(), threading.Event()

    def call_on(client: triton.InferenceServerClient) -> list[float]:
        """Seconds that each call took; a lost one raises."""
        took_s = []
        while not is_over.is_set():
            started_s = time.monotonic()
            inputs = tensor_inputs(INPUT0=row, INPUT1=row)
            client.infer("add-sub", inputs, client_timeout=LIMIT_S)
            took_s.append(time.monotonic() - started_s)
            if took_s[-1] > HUNG_S:
                is_noticed.set()
            time.sleep(0.01)
        return took_s

    with (
        triton.InferenceServerClient(addresses, channel_args=list(options.items())) as client,
        ThreadPoolExecutor(NUM_CALLERS) as pool,
    ):
        callers = [pool.submit(call_on, client) for _ in range(NUM_CALLERS)]
        try:
            time.sleep(WARM_S)
            servers[0].send(signal.SIGSTOP)
            is_noticed.wait(limit_s + SPARE_S)
            time.sleep(WARM_S)
        finally:
            is_over.set()
        slowest_s = max(max(caller.result()) for caller in callers)
    assert all(one.metric("nv_inference_request_success", "add-sub") > 0 for one in servers[1:])
    assert HUNG_S < slowest_s < limit_s + SPARE_S
