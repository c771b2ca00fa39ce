"""Section 7 with a tiny encoder on the CPU: a real server beside its session."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from loadtests.gpu import server_cost
from loadtests.gpu.context import Context, Findings, Run
from loadtests.gpu.server_cost import Load, joined, loads, row_of
from service.contract.tensors import to_raw

LIMIT_S = 110.0  # on a busy machine; rounds are few, so that it takes 8 s on a quiet one


@pytest.fixture(scope="module")
def findings(tiny_run: Run) -> Findings:
    return server_cost.run(Context(tiny_run, "7 server-cost", time.monotonic() + LIMIT_S))


def test_every_load_is_computed_by_both(findings: Findings) -> None:
    assert json.loads(json.dumps(findings, allow_nan=False)) == findings
    assert [row["load"] for row in findings["rows"]] == [load.name for load in loads(is_tiny=True)]
    assert not findings["left_out"]
    for row in findings["rows"]:
        assert row["server_s"]["count"] == row["bare_s"]["count"] >= 3
        assert row["server_s"]["median"] > 0 < row["bare_s"]["median"]


def test_what_the_server_adds_is_the_difference_of_the_times() -> None:
    """8 texts, 2 in a request: 4 requests, of which 2 are in flight for half of a second."""
    row = row_of(Load(2, 2), 8, {"server": [0.5, 0.5], "bare": [0.1, 0.1]})
    assert row["over_bare"]["median"] == pytest.approx(0.2)
    assert row["server_rows_per_s"]["median"] == pytest.approx(16.0)
    assert row["latency_s"] == pytest.approx(0.25)
    assert row["added_s"] == pytest.approx(0.05)


def test_joined_requests_hold_every_text_once() -> None:
    texts = [f"text {number}" for number in range(5)]
    singles = [
        service_pb2.ModelInferRequest(
            model_name="m",
            inputs=[{"name": "text", "datatype": "BYTES", "shape": [1, 1]}],
            raw_input_contents=[to_raw(np.array([text.encode()], object))],
        )
        for text in texts
    ]
    requests = joined(singles, 2)
    assert [list(request.inputs[0].shape) for request in requests] == [[2, 1], [2, 1], [1, 1]]
    contents = b"".join(request.raw_input_contents[0] for request in requests)
    assert contents == to_raw(np.array([text.encode() for text in texts], object))
    assert list(singles[0].inputs[0].shape) == [1, 1]  # they are copied


def test_an_encoder_that_is_not_built_in_time_fails_the_section(tmp_path: Path) -> None:
    run = Run(tmp_path, "cpu", is_tiny=True)
    with pytest.raises(RuntimeError, match="A tiny encoder: it is not built after"):
        server_cost.run(Context(run, "7 server-cost", time.monotonic()))
