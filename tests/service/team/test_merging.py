"""What several processes count, as one: against counting all of it in one place."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import service_pb2 as pb

from service.observe.live import live_numbers
from service.observe.metrics import Metrics
from service.team.merging import (
    OTHER_GAUGES,
    add_statistics,
    merged_numbers,
    merged_page,
)

COUNTS = st.integers(0, 2**40)
SUMMED_GAUGES = {
    "attendant_requests_waiting",
    "attendant_requests_running",
    "attendant_response_cache_bytes",
    "attendant_response_cache_entries",
    "attendant_kv_cache_slots",
    "attendant_kv_cache_slots_used",
    "attendant_kv_cache_tokens_used",
    "attendant_kv_cache_tokens_kept",
    "attendant_prefix_store_bytes",
    "attendant_bytes_in_flight",
    "attendant_calls_in_flight",
    "attendant_batches_unfinished",
    "nv_inference_pending_request_count",
    "process_virtual_memory_bytes",
    "process_resident_memory_bytes",
    "process_open_fds",
}


def counted(calls: dict[str, int], statuses: Counter[int]) -> Metrics:
    metrics = Metrics()
    metrics.for_generation("gpt", 1)
    metrics.server.num_calls = lambda: calls
    metrics.server.num_begun = lambda: calls
    metrics.server.http_statuses = statuses
    metrics.server.build = {"version": "1"}
    return metrics


def samples(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if not family.name.startswith("process_")
    }


def test_every_gauge_says_how_it_is_merged() -> None:
    families = text_string_to_metric_families(counted({"http": 1}, Counter()).page().decode())
    gauges = {family.name for family in families if family.type == "gauge"}
    assert gauges <= SUMMED_GAUGES | set(OTHER_GAUGES)
    assert not SUMMED_GAUGES & set(OTHER_GAUGES)


@given(st.lists(st.dictionaries(st.sampled_from([200, 404, 503]), COUNTS), min_size=1, max_size=4))
def test_counters_of_pages_are_summed(statuses: list[dict[int, int]]) -> None:
    pages = [counted({"http": 1}, Counter(each)).page() for each in statuses]
    merged = samples(merged_page(pages))
    total: Counter[int] = Counter()
    for each in statuses:
        total.update(each)
    found = {
        int(labels[0][1]): count
        for (name, labels), count in merged.items()
        if name == "attendant_http_responses_total"
    }
    assert found == total
    assert merged["attendant_calls_total", (("protocol", "http"),)] == len(statuses)
    assert merged["attendant_build_info", (("version", "1"),)] == 1


def test_a_page_alone_stays_as_it_is() -> None:
    page = counted({"http": 3, "grpc": 5}, Counter({200: 7})).page()
    assert samples(merged_page([page])) == samples(page)
    assert [line for line in merged_page([page]).splitlines() if line.startswith(b"# TYPE")] == [
        line for line in page.splitlines() if line.startswith(b"# TYPE")
    ]


@given(st.lists(st.dictionaries(st.sampled_from(["http", "grpc"]), COUNTS), min_size=1, max_size=4))
def test_live_numbers_are_summed(calls: list[dict[str, int]]) -> None:
    numbers = [live_numbers(counted(each, Counter())) for each in calls]
    merged = merged_numbers(numbers)
    total: Counter[str] = Counter()
    for each in calls:
        total.update(each)
    assert merged["calls"] == merged["calls_in_flight"] == dict(total)
    assert merged.keys() == numbers[0].keys()


def test_rows_of_live_numbers_are_summed_by_what_they_count() -> None:
    one = live_numbers(Metrics()) | {
        "latency": [{"below_seconds": 0.1, "count": 2}, {"below_seconds": None, "count": 1}],
        "batches": [{"rows": 4, "count": 1}],
        "models": ["a/1"],
        "is_ready": True,
    }
    other = one | {"batches": [{"rows": 2, "count": 5}, {"rows": 4, "count": 2}], "models": ["b/1"]}
    merged = merged_numbers([one, other])
    assert merged["latency"] == [
        {"below_seconds": 0.1, "count": 4},
        {"below_seconds": None, "count": 2},
    ]
    assert merged["batches"] == [{"rows": 2, "count": 5}, {"rows": 4, "count": 3}]
    assert merged["models"] == ["a/1", "b/1"]
    assert not merged_numbers([one, one | {"is_ready": False}])["is_ready"]


DURATIONS = st.builds(pb.StatisticDuration, count=COUNTS, ns=COUNTS)
BATCHES = st.builds(pb.InferBatchStatistics, batch_size=st.integers(1, 3), compute_infer=DURATIONS)
MODELS = st.builds(
    pb.ModelStatistics,
    name=st.sampled_from(["a", "b"]),
    version=st.just("1"),
    last_inference=COUNTS,
    inference_count=COUNTS,
    inference_stats=st.builds(pb.InferStatistics, success=DURATIONS),
    batch_stats=st.lists(BATCHES, max_size=3, unique_by=lambda each: each.batch_size),
    response_stats=st.dictionaries(
        st.sampled_from(["0", "1"]), st.builds(pb.InferResponseStatistics, success=DURATIONS)
    ),
)
RESPONSES = st.builds(
    pb.ModelStatisticsResponse,
    model_stats=st.lists(MODELS, max_size=2, unique_by=lambda each: each.name),
)


def plain(response: pb.ModelStatisticsResponse) -> Counter[tuple[object, ...]]:
    """Every count by its place; times of the last request by their names, to be taken apart."""
    found: Counter[tuple[object, ...]] = Counter()
    for model in response.model_stats:
        found[model.name, "count"] += model.inference_count
        found[model.name, "success"] += model.inference_stats.success.ns
        for batch in model.batch_stats:
            found[model.name, "batch", batch.batch_size] += batch.compute_infer.count
        for key, value in model.response_stats.items():
            found[model.name, "response", key] += value.success.count
    return found


@given(RESPONSES, RESPONSES)
def test_statistics_are_summed(
    one: pb.ModelStatisticsResponse, other: pb.ModelStatisticsResponse
) -> None:
    expected = plain(one) + plain(other)
    last: dict[str, int] = {}
    for model in (*one.model_stats, *other.model_stats):
        last[model.name] = max(last.get(model.name, 0), model.last_inference)
    add_statistics(one, other)
    assert plain(one) == expected or +plain(one) == expected
    assert {model.name: model.last_inference for model in one.model_stats} == last


@pytest.mark.parametrize("name", sorted(OTHER_GAUGES))
def test_a_gauge_that_is_not_summed_stays_that_of_equal_processes(name: str) -> None:
    assert OTHER_GAUGES[name]([0.5, 0.5, 0.5]) == 0.5
