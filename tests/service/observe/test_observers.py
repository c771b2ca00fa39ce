"""Every event of a model version reaches every observer once."""

import json
from dataclasses import replace
from pathlib import Path

from service.contract.precision import MAX_DRAFT_TOKENS
from service.observe.generation import POSITIONS
from service.observe.metrics import Metrics
from service.observe.observers import Observers
from service.observe.trace_files import Tracing
from service.records import EndedRequest, RanStep, Timings
from tests.fakes.generation import RecordingObserver

TIMINGS = Timings(10.0, queued_s=10.0, started_s=10.0, finished_s=10.5)
STEP = RanStep("decode", 3, 3, 0.01, 0.002, 0, 0, 0, (), (), (0.01, 0.01, 0.01))


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


def test_drafts_and_evictions_of_a_step_are_counted_by_position_and_piece() -> None:
    """Three drafts of 9 tokens: of one the first is said, of one the first two, of one none."""
    observers = Observers()
    observers.metrics.for_generation("m", 1)
    step = replace(STEP, num_drafted=9, agreed=(1, 2, 0), num_evictions=4)
    for observer in observers.for_model("m", 1):
        observer.step_ran(step)
    registry, labels = observers.metrics.registry, {"model": "m", "version": "1"}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(f"attendant_{name}_total", labels | more)

    assert value("spec_decode_num_drafts") == 3
    assert value("spec_decode_num_draft_tokens") == 9
    assert value("spec_decode_num_accepted_tokens") == 3
    by_position = [
        value("spec_decode_num_accepted_tokens_per_pos", position=str(place)) for place in range(3)
    ]
    assert by_position == [2, 1, None]
    assert value("prefix_store_evictions") == 4
    assert len(POSITIONS) == MAX_DRAFT_TOKENS


def test_further_observers_see_every_model() -> None:
    recorder = RecordingObserver()
    observers = Observers(others=(recorder,))
    for name, version in (("a", 1), ("a", 2), ("b", 1)):
        for observer in observers.for_model(name, version):
            observer.step_ran(STEP)
    assert recorder.steps == [STEP] * 3
