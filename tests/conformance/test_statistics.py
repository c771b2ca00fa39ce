"""ModelStatistics counts what was asked, as perf_analyzer and the examples read it."""

import time

import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.messages import LIMIT_S, Stub, refusal, refused, simple, streamed

PHASES = ("success", "queue", "compute_input", "compute_infer", "compute_output")


def statistics_of(
    client: triton.InferenceServerClient, name: str, version: str = "1"
) -> pb.ModelStatistics:
    (found,) = client.get_inference_statistics(name, version).model_stats
    return found


def test_counts_are_of_requests_rows_and_runs(
    client: triton.InferenceServerClient, stub: Stub
) -> None:
    before, before_ms = statistics_of(client, "simple"), time.time_ns() // 10**6
    for num_rows in (1, 3, 3):
        stub.ModelInfer(simple(num_rows), timeout=LIMIT_S)
    after = statistics_of(client, "simple")
    assert (after.name, after.version) == ("simple", "1")
    assert after.inference_count - before.inference_count == 7
    assert after.execution_count - before.execution_count == 3
    assert before_ms <= after.last_inference <= time.time_ns() // 10**6
    for phase in PHASES:
        new, old = (getattr(s.inference_stats, phase) for s in (after, before))
        assert new.count - old.count == 3, phase
        assert new.ns > old.ns, phase
    assert after.inference_stats.cache_hit.count == after.inference_stats.cache_miss.count == 0
    sizes = {batch.batch_size: batch.compute_infer.count for batch in after.batch_stats}
    was = {batch.batch_size: batch.compute_infer.count for batch in before.batch_stats}
    assert sizes[3] - was.get(3, 0) == 2
    assert sizes[1] - was.get(1, 0) == 1
    assert all(batch.compute_infer.ns > 0 for batch in after.batch_stats)


def test_phases_are_within_the_whole(client: triton.InferenceServerClient, stub: Stub) -> None:
    stub.ModelInfer(simple(), timeout=LIMIT_S)
    stats = statistics_of(client, "simple").inference_stats
    parts = sum(getattr(stats, phase).ns for phase in PHASES[1:])
    assert parts <= stats.success.ns


def test_failures_of_the_model_are_counted(
    client: triton.InferenceServerClient, stub: Stub
) -> None:
    before = statistics_of(client, "lookup").inference_stats
    request = pb.ModelInferRequest(model_name="lookup")
    request.inputs.add(name="index", datatype="INT64", shape=[1, 1])
    request.raw_input_contents.append(np.array([99], "<i8").tobytes())
    assert refusal(stub, request)[0] == "INTERNAL"
    after = statistics_of(client, "lookup").inference_stats
    assert after.fail.count - before.fail.count == 1
    assert after.fail.ns > before.fail.ns
    assert after.success.count == before.success.count


def test_streamed_requests_are_counted_too(
    client: triton.InferenceServerClient, stub: Stub
) -> None:
    before = statistics_of(client, "simple_int8").inference_stats.success.count
    request = simple(model="simple_int8")
    for tensor in request.inputs:
        tensor.datatype = "INT8"
    request.raw_input_contents[:] = [bytes(16)] * 2
    assert not streamed(stub, request)[0].error_message
    assert statistics_of(client, "simple_int8").inference_stats.success.count - before == 1


def test_answers_from_the_cache_are_counted(
    client: triton.InferenceServerClient, stub: Stub
) -> None:
    before = statistics_of(client, "cached").inference_stats
    first, second = (stub.ModelInfer(simple(2, "cached"), timeout=LIMIT_S) for _ in range(2))
    assert first == second
    after = statistics_of(client, "cached").inference_stats
    assert after.cache_miss.count - before.cache_miss.count == 1
    assert after.cache_hit.count - before.cache_hit.count == 1
    assert after.success.count - before.success.count == 2


def test_versions_are_counted_apart_and_no_name_means_all(
    client: triton.InferenceServerClient,
) -> None:
    versions = [s.version for s in client.get_inference_statistics("versions").model_stats]
    assert versions == ["1", "2"]
    everything = {s.name for s in client.get_inference_statistics().model_stats}
    assert everything >= {"simple", "versions", "identity_bf16"}


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("nobody", "", "requested model 'nobody' is not available"),
        ("nobody", "1", "requested model 'nobody' is not available"),
        ("simple", "9", "requested model version is not available for model 'simple'"),
        ("simple", "x", "failed to get model version from specified version string 'x'"),
    ],
)
def test_statistics_of_what_there_is_not_are_refused(
    client: triton.InferenceServerClient, name: str, version: str, text: str
) -> None:
    with refused("INVALID_ARGUMENT", text):
        client.get_inference_statistics(name, version)
