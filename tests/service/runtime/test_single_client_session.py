"""Which of two sessions computes a run, and when there are two."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.contract.tensors import Arrays, Signature
from service.errors import ModelFailed
from service.runtime.session import SessionOptions, num_bytes_of
from service.runtime.single_client_session import SPIN_US, LoneSession, polling_options
from tests.fakes.sessions import FakeSession, spec

X = {"x": np.zeros((1, 2), np.float32)}
SIGNATURE = Signature((spec("x", "FP32", -1, 2),), (spec("y", "FP32", -1, 2),))
OPTIONS = SessionOptions(num_threads=2)
MIB = 2**20


def of(value: float, gate: threading.Event | None = None) -> FakeSession:
    """A session whose output has this value, computed once the gate is open."""

    def compute(arrays: Arrays) -> dict[str, np.ndarray]:
        assert gate is None or gate.wait(10)
        if value < 0:
            raise ModelFailed("no")
        return {"y": np.full_like(arrays["x"], value)}

    return FakeSession(SIGNATURE, compute)


def value_of(session: LoneSession) -> float:
    (array,) = session.run(X, ["y"])
    return float(array[0, 0])


def test_a_run_that_is_alone_polls_and_those_beside_it_sleep() -> None:
    gate = threading.Event()
    session = LoneSession(of(1.0), of(2.0, gate))
    assert session.signature == SIGNATURE
    first: list[float] = []
    thread = threading.Thread(target=lambda: first.append(value_of(session)))
    thread.start()
    while not session.num_running:
        pass
    assert [value_of(session), value_of(session)] == [1.0, 1.0]
    gate.set()
    thread.join(10)
    assert first == [2.0]
    assert value_of(session) == 2.0, "it is alone again"


def test_a_run_that_failed_is_no_longer_under_way() -> None:
    session = LoneSession(of(1.0), of(-1.0))
    for _ in range(2):
        with pytest.raises(ModelFailed):
            session.run(X, ["y"])
    assert session.num_running == 0


@pytest.mark.parametrize(
    ("changes", "max_mib"),
    [
        ({}, 0),
        ({}, 2),
        ({"num_threads": 1}, 4),
        ({"device": "cuda"}, 4),
        ({"can_spin": True}, 4),
        ({"spin_us": 10}, 4),
    ],
)
def test_there_is_one_session_where_a_second_would_not_help_or_is_too_large(
    tmp_path: Path, changes: dict[str, object], max_mib: int
) -> None:
    """The graph and the weights beside it have three MiB together."""
    graph = tmp_path / "model.onnx"
    graph.write_bytes(bytes(MIB))
    graph.with_name("model.onnx.weights").write_bytes(bytes(2 * MIB))
    assert polling_options(num_bytes_of(graph), OPTIONS, 3) == replace(OPTIONS, spin_us=SPIN_US)
    assert polling_options(num_bytes_of(graph), replace(OPTIONS, **changes), max_mib) is None  # type: ignore[arg-type]
