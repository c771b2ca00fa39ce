"""Every metric, in one place; the one door to prometheus_client.

Two families. `nv_inference_*` are Triton's names, labels and units, so that dashboards
made for it keep working. `attendant_*` are ours: histograms, which Triton has not.
docs/metrics.md lists them all. Names never appear at call sites: models call the
methods of their `ModelMetrics`.

prometheus_client appends `_total` to counters, and Triton's names have none, so those
come from a collector over plain numbers, as untyped samples.
"""

import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from http.server import HTTPServer
from typing import Literal

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Histogram,
    disable_created_metrics,
    start_http_server,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from service.request import RanBatch, Timings

FailureReason = Literal["REJECTED", "CANCELED", "BACKEND", "OTHER"]
LABELS = ("model", "version")
# From 0.25 ms, where a small model answers, to 30 s, where nobody waits.
SECONDS = (2.5e-4, 5e-4, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
POWERS_OF_2 = tuple(float(2**power) for power in range(8))
TOKENS = tuple(float(2**power) for power in range(3, 16))
RATIOS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
_NV_COUNTERS = {
    "nv_inference_request_success": "Successful inference requests, all batch sizes",
    "nv_inference_count": "Inferences performed: a request of n rows counts n",
    "nv_inference_exec_count": "Model executions performed: one per batch",
    "nv_inference_request_duration_us": "Cumulative request duration, microseconds",
    "nv_inference_queue_duration_us": "Cumulative queue duration, microseconds",
    "nv_inference_compute_input_duration_us": "Cumulative input preparation, microseconds",
    "nv_inference_compute_infer_duration_us": "Cumulative inference, microseconds",
    "nv_inference_compute_output_duration_us": "Cumulative output preparation, microseconds",
}
_REASONS: tuple[FailureReason, ...] = ("REJECTED", "CANCELED", "BACKEND", "OTHER")


class Metrics:
    """The registry and its instruments; one per server."""

    def __init__(self) -> None:
        disable_created_metrics()  # a time stamp beside every series that nobody reads
        self.registry = CollectorRegistry()
        self.models: list[ModelMetrics] = []

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, LABELS, buckets=buckets, registry=self.registry)

        self.request_seconds = histogram(
            "attendant_request_seconds", "Request, from its arrival to its answer", SECONDS
        )
        self.queue_seconds = histogram(
            "attendant_queue_seconds", "Request in the queue, until its first batch", SECONDS
        )
        self.compute_seconds = histogram(
            "attendant_compute_seconds", "Batch, from collating to splitting", SECONDS
        )
        self.batch_rows = histogram("attendant_batch_rows", "Rows of a batch", POWERS_OF_2)
        self.batch_tokens = histogram(
            "attendant_batch_tokens", "Tokens of a batch, padding included", TOKENS
        )
        self.padding_ratio = histogram(
            "attendant_batch_padding_ratio", "Share of a batch's tokens that is padding", RATIOS
        )
        self.waiting = Gauge(
            "attendant_requests_waiting", "Requests in the queue", LABELS, registry=self.registry
        )
        self.running = Gauge(
            "attendant_requests_running", "Requests in a batch", LABELS, registry=self.registry
        )
        self.registry.register(_TritonNames(self))

    def for_model(self, name: str, version: int) -> "ModelMetrics":
        """The instruments of one model version, with its labels bound."""
        model = ModelMetrics(self, name, str(version))
        self.models.append(model)
        return model

    def serve(self, host: str, port: int) -> HTTPServer:
        """Answer `/metrics` on its own thread; close the returned server to stop."""
        server, _ = start_http_server(port, addr=host, registry=self.registry)
        return server


class ModelMetrics:
    """One model version's instruments. Methods may be called from any thread."""

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        self.labels = {"model": name, "version": version}
        self.load_s = 0.0
        self.num_waiting: Callable[[], int] = lambda: 0
        self._lock = threading.Lock()
        self._counts: Tally[str] = Tally()
        self._failures: Tally[FailureReason] = Tally()
        self._request_seconds = metrics.request_seconds.labels(name, version)
        self._queue_seconds = metrics.queue_seconds.labels(name, version)
        self._compute_seconds = metrics.compute_seconds.labels(name, version)
        self._batch_rows = metrics.batch_rows.labels(name, version)
        self._batch_tokens = metrics.batch_tokens.labels(name, version)
        self._padding_ratio = metrics.padding_ratio.labels(name, version)
        self._waiting = metrics.waiting.labels(name, version)
        self._running = metrics.running.labels(name, version)

    def watch(self, num_waiting: Callable[[], int], num_running: Callable[[], int]) -> None:
        """Read the queue's gauges when somebody scrapes."""
        self.num_waiting = num_waiting
        self._waiting.set_function(num_waiting)
        self._running.set_function(num_running)

    def request_succeeded(self, num_rows: int, timings: Timings) -> None:
        durations_s = {
            "nv_inference_request_duration_us": timings.total_s,
            "nv_inference_queue_duration_us": timings.queue_s,
            "nv_inference_compute_input_duration_us": timings.collate_s,
            "nv_inference_compute_infer_duration_us": timings.run_s,
            "nv_inference_compute_output_duration_us": timings.split_s,
        }
        with self._lock:
            self._counts["nv_inference_request_success"] += 1
            self._counts["nv_inference_count"] += num_rows
            for name, duration_s in durations_s.items():
                self._counts[name] += round(duration_s * 1e6)
        self._request_seconds.observe(timings.total_s)
        self._queue_seconds.observe(timings.queue_s)

    def request_failed(self, reason: FailureReason) -> None:
        with self._lock:
            self._failures[reason] += 1

    def batch_ran(self, batch: RanBatch) -> None:
        padded = batch.num_padded_tokens
        with self._lock:
            self._counts["nv_inference_exec_count"] += 1
        self._compute_seconds.observe(batch.collate_s + batch.run_s + batch.split_s)
        self._batch_rows.observe(batch.num_rows)
        self._batch_tokens.observe(padded)
        self._padding_ratio.observe(1 - batch.num_tokens / padded if padded else 0.0)

    def count(self, name: str) -> int:
        """The present value of one of Triton's counters."""
        return self._counts[name]

    def failures(self, reason: FailureReason) -> int:
        return self._failures[reason]


class _TritonNames(Collector):
    """Triton's counters and gauges, from the plain numbers of every model."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        models = list(self._metrics.models)
        for name, text in _NV_COUNTERS.items():
            metric = Metric(name, text, "unknown")
            for model in models:
                metric.add_sample(name, model.labels, model.count(name))
            yield metric
        failure = "nv_inference_request_failure"
        metric = Metric(failure, "Failed inference requests", "unknown")
        for model in models:
            for reason in _REASONS:
                labels = {**model.labels, "reason": reason}
                metric.add_sample(failure, labels, model.failures(reason))
        yield metric
        pending, load = "nv_inference_pending_request_count", "nv_model_load_duration_secs"
        metric = Metric(pending, "Requests waiting to be executed", "gauge")
        loads = Metric(load, "Time to load the model, seconds", "gauge")
        for model in models:
            metric.add_sample(pending, model.labels, model.num_waiting())
            loads.add_sample(load, model.labels, model.load_s)
        yield metric
        yield loads
