"""Every event of a model version reaches every observer once."""

import json
from pathlib import Path

from service.observe.metrics import Metrics
from service.observe.observers import Observers
from service.observe.trace_files import Tracing
from service.records import EndedRequest, RanStep, Timings
from tests.fakes.generation import RecordingObserver

TIMINGS = Timings(10.0, queued_s=10.0, started_s=10.0, finished_s=10.5)
STEP = RanStep("decode", 3, 3, 0.01, 0.002, 0, 0, 0, (), (0.01, 0.01, 0.01))


def test_a_request_is_counted_and_traced_under_its_model_and_version(tmp_path: Path) -> None:
    tracing = Tracing(tmp_path)
    tracing.update({"trace_level": ["TIMESTAMPS"], "trace_rate": ["1"]})
    observers = Observers(Metrics(), tracing)
    for observer in observers.for_model("m", 3):
        observer.request_ended(EndedRequest(TIMINGS, 2, "mine"))
    tracing.close(10)
    (trace,) = json.loads((tmp_path / "trace.json").read_text())
    assert [trace[key] for key in ("model_name", "model_version", "request_id")] == ["m", 3, "mine"]
    assert observers.metrics.for_model("m", 3).count("nv_inference_count") == 2


def test_a_step_counts_for_its_version_and_for_generation() -> None:
    """A step of 3 rows is one execution, and one of `iteration_rows`."""
    observers = Observers()
    observers.metrics.for_generation("m", 1)
    for observer in observers.for_model("m", 1):
        observer.step_ran(STEP)
    assert observers.metrics.for_model("m", 1).count("nv_inference_exec_count") == 1
    labels = {"model": "m", "version": "1"}
    rows = observers.metrics.registry.get_sample_value("attendant_iteration_rows_sum", labels)
    assert rows == 3


def test_further_observers_see_every_model() -> None:
    recorder = RecordingObserver()
    observers = Observers(others=(recorder,))
    for name, version in (("a", 1), ("a", 2), ("b", 1)):
        for observer in observers.for_model(name, version):
            observer.step_ran(STEP)
    assert recorder.steps == [STEP] * 3
