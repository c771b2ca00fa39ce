"""What a scrape shows: Triton's names to the letter, and our histograms."""

import asyncio
import threading
import urllib.request
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from service.batching.request import Item, Request
from service.errors import DeadlineExceeded, ModelFailed, Overloaded
from service.generation.cache.kv_cache import KVCache
from service.observe import metrics as metrics_module
from service.observe.metrics import MAX_UNCOUNTED, Metrics
from service.records import EndedRequest, RanBatch, Timings
from tests.fakes.sessions import FakeDecoder

# Name, type and labels as Triton's core/src/metrics.cc has them; dashboards match on these.
TRITON = {
    "nv_inference_request_success": {"model", "version"},
    "nv_inference_request_failure": {"model", "version", "reason"},
    "nv_inference_count": {"model", "version"},
    "nv_inference_exec_count": {"model", "version"},
    "nv_inference_request_duration_us": {"model", "version"},
    "nv_inference_queue_duration_us": {"model", "version"},
    "nv_inference_compute_input_duration_us": {"model", "version"},
    "nv_inference_compute_infer_duration_us": {"model", "version"},
    "nv_inference_compute_output_duration_us": {"model", "version"},
    "nv_cache_num_hits_per_model": {"model", "version"},
    "nv_cache_num_misses_per_model": {"model", "version"},
    "nv_cache_hit_duration_per_model": {"model", "version"},
    "nv_cache_miss_duration_per_model": {"model", "version"},
    "nv_inference_pending_request_count": {"model", "version"},
    "nv_model_load_duration_secs": {"model", "version"},
}
HISTOGRAMS = (
    "attendant_request_seconds",
    "attendant_queue_seconds",
    "attendant_compute_seconds",
    "attendant_batch_rows",
    "attendant_batch_tokens",
    "attendant_batch_padding_ratio",
)


def exposed(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def samples(metrics: Metrics, model: str = "m", version: str = "1") -> dict[str, float]:
    """Every sample of a model's version, by name and remaining labels."""
    found, labels = {}, {"model": model, "version": version}
    for family in text_string_to_metric_families(exposed(metrics)):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                rest = [
                    f"{key}={value}" for key, value in sample.labels.items() if key not in labels
                ]
                found[" ".join([sample.name, *rest])] = sample.value
    return found


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def batch(*sizes: tuple[int, int], run_s: float = 0.004) -> RanBatch:
    """One that ran with items of (rows, tokens per row)."""
    request = Request(Timings(0.0))
    items = [Item(request, {}, rows, tokens) for rows, tokens in sizes]
    return RanBatch(items, 0.001, run_s, 0.002)


TIMINGS = Timings(
    received_s=10.0,
    queued_s=10.001,
    started_s=10.003,
    finished_s=10.01,
    collate_s=0.0005,
    run_s=0.004,
    split_s=0.00025,
)


def test_triton_s_names_are_on_the_page_to_the_letter(metrics: Metrics) -> None:
    """Also before the first request, so that rates start at zero; counters without `_total`."""
    metrics.for_model("m", 3)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(exposed(metrics)):
        for sample in family.samples:
            if sample.name.startswith("nv_"):
                found.setdefault(sample.name, set()).update(sample.labels)
                assert (sample.labels["model"], sample.labels["version"]) == ("m", "3")
    assert found == TRITON


def test_failures_carry_triton_s_reasons(metrics: Metrics) -> None:
    model = metrics.for_model("m", 1)
    late, failed = DeadlineExceeded(""), ModelFailed("")
    for error in (late, failed, Overloaded(""), asyncio.CancelledError(), failed, late):
        model.request_ended(EndedRequest(TIMINGS, error=error))
    found = samples(metrics)
    name = "nv_inference_request_failure reason"
    assert found[f"{name}=REJECTED"] == 3
    assert found[f"{name}=CANCELED"] == 1
    assert found[f"{name}=BACKEND"] == 2
    assert found[f"{name}=OTHER"] == 0


def test_one_request_of_two_rows_counts_one_request_and_two_inferences(metrics: Metrics) -> None:
    """10 ms in all: 2 in the queue, 0.5 + 4 + 0.25 in its batch."""
    metrics.for_model("m", 1).request_ended(EndedRequest(TIMINGS, 2))
    found = samples(metrics)
    assert found["nv_inference_request_success"] == 1
    assert found["nv_inference_count"] == 2
    assert found["nv_inference_request_duration_us"] == 10_000
    assert found["nv_inference_queue_duration_us"] == 2_000
    assert found["nv_inference_compute_input_duration_us"] == 500
    assert found["nv_inference_compute_infer_duration_us"] == 4_000
    assert found["nv_inference_compute_output_duration_us"] == 250
    assert found["attendant_request_seconds_count"] == 1
    assert found["attendant_request_seconds_sum"] == pytest.approx(0.01)
    assert found["attendant_queue_seconds_sum"] == pytest.approx(0.002)


def test_short_durations_add_up(metrics: Metrics) -> None:
    """A thousand of 400 ns are 400 microseconds, though each of them rounds to none."""
    model = metrics.for_model("m", 1)
    for _ in range(1000):
        timings = Timings(1.0, queued_s=1.0, started_s=1.0, finished_s=1.0, run_s=4e-7)
        model.request_ended(EndedRequest(timings, 1))
    assert model.count("nv_inference_compute_infer_duration_us") == 400


def test_an_answer_from_the_cache_is_a_success_and_no_inference(metrics: Metrics) -> None:
    """It took 10 ms, of which the cache took 2; it did not wait."""
    model = metrics.for_model("m", 1)
    model.request_ended(EndedRequest(TIMINGS, lookup_s=0.002))
    model.missed_cache(0.001)
    with model.reading() as statistics:
        assert statistics.last_inference_ms > 0
    found = samples(metrics)
    assert found["nv_inference_request_success"] == 1
    assert found["nv_inference_request_duration_us"] == 10_000
    assert found["nv_inference_count"] == found["nv_inference_queue_duration_us"] == 0
    assert found["nv_cache_num_hits_per_model"] == found["nv_cache_num_misses_per_model"] == 1
    assert found["nv_cache_hit_duration_per_model"] == 2_000
    assert found["nv_cache_miss_duration_per_model"] == 1_000


def test_one_batch_counts_one_execution_with_its_rows_tokens_and_padding(metrics: Metrics) -> None:
    """Rows of 10, 10 and 20 tokens: 60 computed, 40 real, a third is padding."""
    metrics.for_model("m", 1).batch_ran(batch((1, 10), (1, 10), (1, 20)))
    found = samples(metrics)
    assert found["nv_inference_exec_count"] == 1
    assert found["attendant_batch_rows_sum"] == 3
    assert found["attendant_batch_tokens_sum"] == 60
    assert found["attendant_batch_padding_ratio_sum"] == pytest.approx(1 / 3)
    assert found["attendant_compute_seconds_sum"] == pytest.approx(0.007)


def test_a_batch_of_no_rows_has_no_padding(metrics: Metrics) -> None:
    metrics.for_model("m", 1).batch_ran(batch((0, 1)))
    assert samples(metrics)["attendant_batch_padding_ratio_sum"] == 0


class BusyEngine:
    """What an engine says of itself."""

    num_waiting = 3
    num_running = 2


def watched(metrics: Metrics, version: int) -> list[weakref.ref[Any]]:
    """An engine with 3 requests waiting and 2 running, and a cache of 4 slots: watched only."""
    cache = KVCache(4, 8, FakeDecoder().copy)
    metrics.for_generation("m", version).watch(cache)
    engine = BusyEngine()
    metrics.for_model("m", version).watch(lambda: engine.num_waiting, lambda: engine.num_running)
    return [weakref.ref(cache), weakref.ref(engine)]


def test_a_version_loaded_anew_goes_on_counting_and_lets_go_of_its_engine(metrics: Metrics) -> None:
    """Whoever asks for it a second time gets the same numbers, and no gauge of the first."""
    first = metrics.for_model("m", 1)
    held = watched(metrics, 1)
    first.request_ended(EndedRequest(TIMINGS, 1))
    found = samples(metrics)
    assert found["attendant_requests_running"] == 2
    assert found["attendant_kv_cache_slots"] == 4
    first.unwatch()
    assert [reference() for reference in held] == [None, None]
    found = samples(metrics)
    assert found["nv_inference_pending_request_count"] == 0
    assert found["attendant_requests_waiting"] == found["attendant_requests_running"] == 0
    assert found["attendant_kv_cache_slots"] == found["attendant_kv_cache_usage_perc"] == 0
    second = metrics.for_model("m", 1)
    second.watch(lambda: 7, lambda: 0)
    second.request_ended(EndedRequest(TIMINGS, 1))
    found = samples(metrics)
    assert found["nv_inference_request_success"] == 2
    assert found["attendant_requests_waiting"] == 7


def test_versions_that_nobody_serves_leave_the_page_when_there_are_too_many(
    metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for two: the first is served, so that the second makes room for the third."""
    monkeypatch.setattr(metrics_module, "MAX_VERSIONS", 2)
    metrics.for_model("m", 1).watch(lambda: 1, lambda: 0)
    watched(metrics, 2)
    metrics.for_model("m", 2).unwatch()
    metrics.for_model("m", 3).watch(lambda: 1, lambda: 0)
    page = exposed(metrics)
    assert [number for number in (1, 2, 3) if f'version="{number}"' in page] == [1, 3]
    metrics.for_model("m", 4).watch(lambda: 1, lambda: 0)
    assert 'version="4"' in exposed(metrics), "what is served is always shown"


def test_models_and_versions_are_counted_apart(metrics: Metrics) -> None:
    counts = {("a", 1): 1, ("a", 2): 2, ("b", 1): 3}
    for (name, version), count in counts.items():
        model = metrics.for_model(name, version)
        for _ in range(count):
            model.request_ended(EndedRequest(TIMINGS, 1))
    for (name, version), count in counts.items():
        found = samples(metrics, model=name, version=str(version))
        assert found["nv_inference_request_success"] == count
        assert found["attendant_request_seconds_count"] == count


def test_gauges_are_read_when_somebody_looks(metrics: Metrics) -> None:
    model = metrics.for_model("m", 1)
    waiting = [3]
    model.watch(lambda: waiting[0], lambda: 2)
    model.load_s = 1.5
    found = samples(metrics)
    assert found["nv_inference_pending_request_count"] == 3
    assert found["attendant_requests_waiting"] == 3
    assert found["attendant_requests_running"] == 2
    assert found["nv_model_load_duration_secs"] == 1.5
    waiting[0] = 0
    assert samples(metrics)["nv_inference_pending_request_count"] == 0


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_our_histograms_have_a_line_for_every_bucket(metrics: Metrics, name: str) -> None:
    metrics.for_model("m", 1)
    bounds = [
        float(key.split("le=")[1]) for key in samples(metrics) if key.startswith(f"{name}_bucket")
    ]
    assert bounds == sorted(bounds)
    assert bounds[-1] == float("inf")
    if name.endswith("_seconds"):
        assert bounds[0] <= 0.001
        assert bounds[-2] >= 10


@dataclass
class Loading:
    """A process that lives and is not ready."""

    is_live: bool = True
    is_ready: bool = False
    lifeless_reason: str = ""
    unready_reason: str = "models are loading"


def test_the_page_is_served_over_http(metrics: Metrics) -> None:
    metrics.for_model("m", 1).request_ended(EndedRequest(TIMINGS, 1))
    server = metrics.serve("127.0.0.1", 0, Loading())
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as response:
            page = response.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    assert 'nv_inference_request_success{model="m",version="1"} 1.0' in page
    assert "# TYPE attendant_request_seconds histogram" in page


def test_the_server_s_numbers_are_read_when_somebody_scrapes(metrics: Metrics) -> None:
    numbers = metrics.server
    numbers.is_ready, numbers.num_calls = lambda: True, lambda: {"http": 7}
    numbers.refusals["bytes"] += 2
    numbers.loads["m", "failure"] += 1
    numbers.build = {"version": "1", "onnxruntime": "2"}
    read = metrics.registry.get_sample_value
    assert read("attendant_ready") == 1
    assert read("attendant_live") == 0
    assert read("attendant_calls_in_flight", {"protocol": "http"}) == 7
    assert read("attendant_calls_refused_total", {"bound": "bytes"}) == 2
    assert read("attendant_calls_refused_total", {"bound": "token"}) == 0
    labels = {"model": "m", "outcome": "failure"}
    assert read("attendant_model_loads_total", labels) == 1
    assert read("attendant_build_info", numbers.build) == 1
    assert (read("process_resident_memory_bytes") or 0) > 2**20


def test_what_waits_to_be_counted_is_bounded() -> None:
    model = Metrics().for_model("m", 1)
    for _ in range(10 * MAX_UNCOUNTED):
        model.request_ended(EndedRequest(TIMINGS, 1))
        model.batch_ran(batch((1, 1)))
        assert max(len(model._computed), len(model._ran)) < MAX_UNCOUNTED


def test_a_page_of_some_metrics_has_what_happened_by_then_too(metrics: Metrics) -> None:
    metrics.for_model("m", 1).request_ended(EndedRequest(TIMINGS, 1))
    name = "attendant_request_seconds_count"
    page = generate_latest(metrics.registry.restricted_registry([name])).decode()
    assert f'{name}{{model="m",version="1"}} 1.0' in page


def test_nothing_is_lost_where_threads_count_and_pages_are_read_meanwhile(metrics: Metrics) -> None:
    model = metrics.for_model("m", 1)

    def work() -> None:
        for _ in range(500):
            model.request_ended(EndedRequest(TIMINGS, 2))
            model.batch_ran(batch((1, 4), (1, 2)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        exposed(metrics)
    for thread in threads:
        thread.join()
    found = samples(metrics)
    assert found["nv_inference_request_success"] == 2_000
    assert found["nv_inference_count"] == 4_000
    assert found["nv_inference_exec_count"] == 2_000
    assert found["attendant_request_seconds_count"] == 2_000
    assert found["attendant_batch_rows_sum"] == 4_000
    assert found["attendant_batch_padding_ratio_sum"] == pytest.approx(500)


def test_a_value_on_a_bound_is_in_the_bucket_below_it(metrics: Metrics) -> None:
    for rows in (1, 2, 3, 1_000):
        metrics.for_model("m", 1).batch_ran(batch((rows, 1)))
    found = samples(metrics)
    counts = [found[f"attendant_batch_rows_bucket le={le}"] for le in ("1.0", "2.0", "4.0", "+Inf")]
    assert counts == [1, 2, 3, 4]
