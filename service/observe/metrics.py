"""All metrics except those of generation and of the process, and the page with all of them.

Two families. `nv_inference_*` are Triton's names, labels and units, so that dashboards
made for it keep working. `attendant_*` are ours: histograms, which Triton has not.
docs/reference/metrics.md lists them all. Names never appear at call sites: engines and models
report events to their observers, of which `ModelMetrics` is one.

prometheus_client appends `_total` to counters, and Triton's names have none, so those
come from a collector over plain numbers (`statistics.py`), as untyped samples.
"""

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Many
from contextlib import contextmanager
from itertools import accumulate
from math import inf
from typing import TypeAlias, TypeVar, get_args

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
    make_wsgi_app,
)
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, RestrictedRegistry
from prometheus_client.utils import floatToGoString

from service.observe.generation import (
    LABELS,
    POWERS_OF_2,
    SECONDS,
    GenerationInstruments,
    GenerationMetrics,
)
from service.observe.page import MetricsServer
from service.observe.probes import Probed, with_probes
from service.observe.server import ServerCollector, ServerNumbers
from service.observe.statistics import FailureReason, Refusal, Statistics
from service.records import EndedRequest, Observer, RanBatch, RanStep

Durations: TypeAlias = tuple[float, float, float]  # collating, the session run, splitting
Sizes: TypeAlias = list[tuple[int, int]]  # rows and tokens per row, of each item
T = TypeVar("T")
MAX_UNCOUNTED = 64  # requests or batches of one version; then they are counted
MAX_VERSIONS = 4_096  # with series of their own, unless more are served at once
TOKENS = tuple(float(2**power) for power in range(3, 16))
RATIOS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
_HISTOGRAMS = {
    "attendant_request_seconds": ("Answered requests, from arrival to answer", SECONDS),
    "attendant_queue_seconds": ("Answered requests, in the queue", SECONDS),
    "attendant_compute_seconds": ("Batches, from collating to splitting", SECONDS),
    "attendant_batch_rows": ("Rows of each batch", POWERS_OF_2),
    "attendant_batch_tokens": ("Tokens of each batch, padding included", TOKENS),
    "attendant_batch_padding_ratio": ("Share of each batch's tokens that is padding", RATIOS),
}
FAILED = (
    "Requests that failed, by reason: REJECTED (full queue, too long a wait, a passed deadline, a"
    " stopped engine), CANCELED, BACKEND (the model raised), OTHER"
)
REFUSED = (
    "Requests that were not computed, by reason: queue (it is full), wait (longer than"
    " --max-queue-s), deadline (the answer would be late), late (admitted, and no longer in time)"
)
_REASONS: tuple[FailureReason, ...] = get_args(FailureReason)
_NV_COUNTERS: dict[str, tuple[str, Callable[[Statistics], int]]] = {
    "nv_inference_request_success": (
        "Requests answered",
        lambda model: model.success.count,
    ),
    "nv_inference_count": (
        "Rows of answered requests",
        lambda model: model.inference_count,
    ),
    "nv_inference_exec_count": (
        "Session runs; rows over this is the mean batch",
        lambda model: model.execution_count,
    ),
    "nv_inference_request_duration_us": (
        "Time from arrival to answer",
        lambda model: model.success.us,
    ),
    "nv_inference_queue_duration_us": (
        "Time in the queue, until the first batch",
        lambda model: model.queue.us,
    ),
    "nv_inference_compute_input_duration_us": (
        "Collating, of the batches that a request was in",
        lambda model: model.compute.compute_input.us,
    ),
    "nv_inference_compute_infer_duration_us": (
        "Session runs, of the batches that a request was in",
        lambda model: model.compute.compute_infer.us,
    ),
    "nv_inference_compute_output_duration_us": (
        "Splitting, of the batches that a request was in",
        lambda model: model.compute.compute_output.us,
    ),
    "nv_cache_num_hits_per_model": (
        "Requests that the response cache answered; no inferences, but successes",
        lambda model: model.cache_hit.count,
    ),
    "nv_cache_num_misses_per_model": (
        "Requests of models with a response cache that were computed",
        lambda model: model.cache_miss.count,
    ),
    "nv_cache_hit_duration_per_model": (
        "Lookups of answers that the response cache had",
        lambda model: model.cache_hit.us,
    ),
    "nv_cache_miss_duration_per_model": (
        "Lookups and insertions of answers that the response cache had not",
        lambda model: model.cache_miss.us,
    ),
}


class Metrics:
    """The registry and its instruments; one per server."""

    def __init__(self) -> None:
        disable_created_metrics()  # a time stamp beside every series, without a reader
        self.registry = _Registry(self)
        self._models: dict[tuple[str, int], ModelMetrics] = {}

        self.waiting = Gauge(
            "attendant_requests_waiting",
            "Requests in the queue, or sequences of a generative model",
            LABELS,
            registry=self.registry,
        )
        self.running = Gauge(
            "attendant_requests_running",
            "Requests with a batch under way, or sequences; waiting + running is the load",
            LABELS,
            registry=self.registry,
        )
        self._instruments = (self.waiting, self.running)
        self._cache_bytes = Gauge(
            "attendant_response_cache_bytes",
            "Memory of the response cache's answers",
            registry=self.registry,
        )
        self._cache_entries = Gauge(
            "attendant_response_cache_entries",
            "Answers in the response cache",
            registry=self.registry,
        )
        self.generation = GenerationInstruments(self.registry)
        self.server = ServerNumbers()
        self.registry.register(_TritonNames(self))
        self.registry.register(_Histograms(self))
        self.registry.register(_Refusals(self))
        self.registry.register(ServerCollector(self.server))
        ProcessCollector(registry=self.registry)

    @property
    def models(self) -> list["ModelMetrics"]:
        return list(self._models.values())

    def for_model(self, name: str, version: int) -> "ModelMetrics":
        """The instruments of one model version, with its labels bound.

        A version loaded anew goes on counting where the one before it is; its engine is watched in
        the other's place.
        """
        key = (name, version)
        if key not in self._models:
            if len(self._models) >= MAX_VERSIONS:
                self._forget_one()
            self._models[key] = ModelMetrics(self, name, str(version))
        return self._models[key]

    def _forget_one(self) -> None:
        """The oldest version that is no longer served; if it comes back, it counts from zero."""
        idle = (key for key, model in self._models.items() if not model.is_watched)
        key = next(idle, None)
        if key is not None:
            model = self._models.pop(key)
            for instrument in self._instruments:
                instrument.remove(*model.labels.values())
            if model.generation is not None:
                self.generation.forget(*model.labels.values())

    def watch_cache(self, num_bytes: Callable[[], int], num_entries: Callable[[], int]) -> None:
        """Read the response cache's gauges at a scrape."""
        self._cache_bytes.set_function(num_bytes)
        self._cache_entries.set_function(num_entries)

    def for_generation(self, name: str, version: int) -> GenerationMetrics:
        """The further metrics of a generative model version."""
        model = self.for_model(name, version)
        if model.generation is None:
            model.generation = GenerationMetrics(self.generation, tuple(model.labels.values()))
        return model.generation

    def page(self) -> bytes:
        """All of them in Prometheus's text format; takes some milliseconds, on any thread."""
        return generate_latest(self.registry)

    def serve(self, host: str, port: int, state: Probed) -> MetricsServer:
        """Answer `/metrics` and probes on threads of its own, until the server is stopped."""
        server = MetricsServer(host, port, with_probes(make_wsgi_app(self.registry), state))
        server.start()
        return server


class ModelMetrics(Observer):
    """One model version's instruments. Methods may be called from any thread.

    Requests and batches are collected and counted many at a time, because counting each one costs
    cache misses and locks. Reading counts all collected ones first.
    """

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        self.labels = {"model": name, "version": version}
        self.load_s = 0.0
        self.num_waiting: Callable[[], int] = _zero
        self.generation: GenerationMetrics | None = None
        self._lock = threading.Lock()
        self._statistics = Statistics()
        self._computed: deque[EndedRequest] = deque()
        self._ran: deque[tuple[Sizes, Durations]] = deque()
        self.histograms = {name: _Buckets(bounds) for name, (_, bounds) in _HISTOGRAMS.items()}
        self._waiting = metrics.waiting.labels(name, version)
        self._running = metrics.running.labels(name, version)

    def watch(self, num_waiting: Callable[[], int], num_running: Callable[[], int]) -> None:
        """Read the queue's gauges at a scrape."""
        self.num_waiting = num_waiting
        self._waiting.set_function(num_waiting)
        self._running.set_function(num_running)

    def unwatch(self) -> None:
        """Hold the engine no more, whose gauges read 0 from now on."""
        self.watch(_zero, _zero)
        if self.generation is not None:
            self.generation.unwatch()

    @property
    def is_watched(self) -> bool:
        """Whether an engine serves this version now."""
        return self.num_waiting is not _zero

    @contextmanager
    def reading(self) -> Iterator[Statistics]:
        """The numbers so far, consistent with each other; nothing is counted meanwhile."""
        with self._lock:
            self._count()
            yield self._statistics

    def request_ended(self, request: EndedRequest) -> None:
        timings, error, lookup_s = request.timings, request.error, request.lookup_s
        if error is not None:
            with self._lock:
                self._statistics.failed(error, timings.total_s)
        elif lookup_s is not None:
            with self._lock:
                self._statistics.answered_from_cache(timings, lookup_s, _now_ms())
                self.histograms["attendant_request_seconds"].add([timings.total_s])
        else:
            self._computed.append(request)
            if len(self._computed) >= MAX_UNCOUNTED:
                self._count_unless_busy()

    def missed_cache(self, duration_s: float) -> None:
        """A request was looked up and, once computed, put in, which took so long together."""
        with self._lock:
            self._statistics.cache_miss.add(duration_s)

    def step_ran(self, step: RanStep) -> None:
        """Count a step; time outside of the session counts as output."""
        with self._lock:
            self._statistics.executed(step.num_rows, 0.0, step.run_s, step.other_s)

    def batch_ran(self, batch: RanBatch) -> None:
        sizes = [(item.num_rows, item.num_tokens) for item in batch.items]  # without their arrays
        self._ran.append((sizes, (batch.collate_s, batch.run_s, batch.split_s)))
        if len(self._ran) >= MAX_UNCOUNTED:
            self._count_unless_busy()

    def count(self, name: str) -> int:
        """The present value of one of Triton's counters."""
        _, value_of = _NV_COUNTERS[name]
        with self.reading() as statistics:
            return value_of(statistics)

    def refusals(self, reason: Refusal) -> int:
        return self._statistics.refusals[reason]

    def failures(self, reason: FailureReason) -> int:
        return self._statistics.failures[reason]

    def count_all(self) -> None:
        """Count what was put down so far."""
        with self._lock:
            self._count()

    def _count_unless_busy(self) -> None:
        """Count what was put down, unless another thread is about it."""
        if self._lock.acquire(blocking=False):
            try:
                self._count()
            finally:
                self._lock.release()

    def _count(self) -> None:
        """Under the lock."""
        statistics, histograms = self._statistics, self.histograms
        if computed := list(_taken(self._computed)):
            timings = [request.timings for request in computed]
            answered_rows = sum([request.num_rows for request in computed])
            last_ago_s = time.monotonic() - max([t.finished_s for t in timings])
            statistics.succeeded(answered_rows, timings, _now_ms() - round(last_ago_s * 1e3))
            histograms["attendant_request_seconds"].add([t.total_s for t in timings])
            histograms["attendant_queue_seconds"].add([t.queue_s for t in timings])
        if ran := list(_taken(self._ran)):
            all_sizes, all_durations = zip(*ran, strict=True)
            num_rows = [sum([rows for rows, _ in sizes]) for sizes in all_sizes]
            num_tokens = [sum([rows * tokens for rows, tokens in sizes]) for sizes in all_sizes]
            longest = [max([tokens for _, tokens in sizes]) for sizes in all_sizes]
            padded = [rows * tokens for rows, tokens in zip(num_rows, longest, strict=True)]
            shares = [
                own / all_ if all_ else 1.0 for own, all_ in zip(num_tokens, padded, strict=True)
            ]
            for size, durations in zip(num_rows, all_durations, strict=True):
                statistics.executed(size, *durations)
            histograms["attendant_compute_seconds"].add([sum(d) for d in all_durations])
            histograms["attendant_batch_rows"].add(num_rows)
            histograms["attendant_batch_tokens"].add(padded)
            histograms["attendant_batch_padding_ratio"].add([1 - share for share in shares])


class _Buckets:
    """One series of a histogram, in plain numbers, guarded by its owner."""

    def __init__(self, bounds: Many[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last: above all bounds
        self._total = 0.0

    def add(self, values: Many[float]) -> None:
        for value in values:
            self._counts[bisect_left(self._bounds, value)] += 1
        self._total += sum(values)

    def counts(self) -> dict[float, int]:
        """The number of values up to each bound and above the one before it."""
        return dict(zip((*self._bounds, inf), self._counts, strict=True))

    def show(self, family: HistogramMetricFamily, labels: Many[str]) -> None:
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        buckets = list(zip(names, accumulate(self._counts), strict=True))
        family.add_metric(labels, buckets, self._total)


class _Histograms(Collector):
    """Ours of requests and batches: prometheus_client's own would lock for every number."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """Names by which a page of some metrics finds these."""
        for name, (text, _) in _HISTOGRAMS.items():
            yield HistogramMetricFamily(name, text, labels=LABELS)

    def collect(self) -> Iterator[Metric]:
        for family in self.describe():
            for model in self._metrics.models:
                with model.reading():
                    model.histograms[family.name].show(family, list(model.labels.values()))
            yield family


class _Refusals(Collector):
    """Requests that were not computed, for want of time or room."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        family = CounterMetricFamily(
            "attendant_requests_refused",
            REFUSED,
            labels=(*LABELS, "reason"),
        )
        for model in self._metrics.models:
            for reason in get_args(Refusal):
                family.add_metric((*model.labels.values(), reason), model.refusals(reason))
        yield family


class _Registry(CollectorRegistry):
    """A registry whose pages include all requests until the scrape."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        self._count_all()
        yield from super().collect()

    def restricted_registry(self, names: Iterable[str]) -> RestrictedRegistry:
        self._count_all()
        return super().restricted_registry(names)

    def _count_all(self) -> None:
        for model in self._metrics.models:
            model.count_all()


class _TritonNames(Collector):
    """Triton's counters and gauges, from the plain numbers of every model."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        models = self._metrics.models
        for name, (text, _) in _NV_COUNTERS.items():
            metric = Metric(name, text, "unknown")
            for model in models:
                metric.add_sample(name, model.labels, model.count(name))
            yield metric
        failure = "nv_inference_request_failure"
        metric = Metric(failure, FAILED, "unknown")
        for model in models:
            for reason in _REASONS:
                labels = {**model.labels, "reason": reason}
                metric.add_sample(failure, labels, model.failures(reason))
        yield metric
        pending, load = "nv_inference_pending_request_count", "nv_model_load_duration_secs"
        metric = Metric(pending, "Requests waiting now", "gauge")
        loads = Metric(load, "Time from reading the model's folder to ready", "gauge")
        for model in models:
            metric.add_sample(pending, model.labels, model.num_waiting())
            loads.add_sample(load, model.labels, model.load_s)
        yield metric
        yield loads


def _taken(waiting: deque[T]) -> Iterator[T]:
    """The collected events; only one thread at a time may take them."""
    for _ in range(len(waiting)):
        yield waiting.popleft()


def _zero() -> int:
    return 0


def _now_ms() -> int:
    return time.time_ns() // 10**6
