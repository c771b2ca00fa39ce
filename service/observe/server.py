"""The metrics of the process as a whole: readiness, use of its bounds, refusals.

They are read from plain numbers at a scrape; nothing is counted twice, and no call pays for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

Bound: TypeAlias = Literal["calls", "bytes", "draining", "token", "key"]
BOUNDS: tuple[Bound, ...] = ("calls", "bytes", "draining", "token", "key")
RESULTS = "completed", "failed"  # of the lines of batches
Outcome: TypeAlias = Literal["success", "failure"]


def _nothing() -> None:
    return None


@dataclass(slots=True)
class ServerNumbers:
    """The sources of the numbers; each part of the server registers itself."""

    is_ready: Callable[[], bool] = bool
    is_live: Callable[[], bool] = bool
    loop_gap_s: Callable[[], float] = float  # the event loop's longest of the last minutes
    num_calls: Callable[[], dict[str, int]] = dict  # in flight by protocol, open streams included
    num_begun: Callable[[], dict[str, int]] = dict  # by protocol since the start, without probes
    num_bytes: Callable[[], int] = int  # of requests in flight, and of answers not yet read
    num_unserved: Callable[[], int] = int  # models that are wanted and have no version
    certificate_ends_s: Callable[[], float | None] = _nothing  # since 1970; None without TLS
    http_statuses: Counter[int] = field(default_factory=Counter)  # of answers over HTTP
    batch_lines: Counter[str] = field(default_factory=Counter)  # of batches' files, by result
    num_batches: Callable[[], int] = int  # that have not ended
    refusals: Counter[Bound] = field(default_factory=Counter)  # before a model is looked for
    loads: Counter[tuple[str, Outcome]] = field(default_factory=Counter)  # by model
    build: dict[str, str] = field(default_factory=dict)  # versions of what serves


HELPS = {
    "attendant_ready": "1 while models are loaded, all are served, and the server does not drain",
    "attendant_live": "0 if only a restart helps: an endless run, a lost device, a dead event loop",
    "attendant_event_loop_gap_seconds": (
        "Longest time of the last one to two minutes for which the event loop stood still"
    ),
    "attendant_bytes_in_flight": (
        "Bytes of requests in flight, and of answers not yet read; see --max-bytes-in-flight"
    ),
    "attendant_models_unserved": (
        "Models that should be served and have no serving version, or a failed one"
    ),
    "attendant_calls_in_flight": (
        "Open calls, streams included, by protocol (grpc, http); see --max-concurrent-rpcs"
    ),
    "attendant_calls": "Calls begun, by protocol (grpc, http), without probes and scrapes",
    "attendant_http_responses": (
        "Answers over HTTP, by status; a stream counts by the status that it began with"
    ),
    "attendant_tls_certificate_expiry_timestamp_seconds": (
        "When the certificate in use ends; absent without TLS"
    ),
    "attendant_calls_refused": (
        "Calls refused before a model was looked for, by bound: calls, bytes, draining (streams"
        " that a drain ended), token, key"
    ),
    "attendant_batches_unfinished": "Batches of /v1/batches that have not ended",
    "attendant_batch_lines": "Requests of batches that were answered, by result: completed, failed",
    "attendant_model_loads": "Loads of models, by model and outcome (success, failure)",
    "attendant_build": "1, with the labels version and onnxruntime",
}


class ServerCollector(Collector):
    """The numbers under their names."""

    def __init__(self, numbers: ServerNumbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers
        yield _gauge("attendant_ready", numbers.is_ready())
        yield _gauge("attendant_live", numbers.is_live())
        yield _gauge("attendant_event_loop_gap_seconds", numbers.loop_gap_s())
        yield _gauge("attendant_bytes_in_flight", numbers.num_bytes())
        yield _gauge("attendant_models_unserved", numbers.num_unserved())
        name = "attendant_calls_in_flight"
        calls = GaugeMetricFamily(name, HELPS[name], labels=("protocol",))
        for protocol, count in numbers.num_calls().items():
            calls.add_metric((protocol,), count)
        yield calls
        begun = {(protocol,): count for protocol, count in numbers.num_begun().items()}
        yield _counter("attendant_calls", ("protocol",), begun.items())
        responses = {(str(status),): count for status, count in numbers.http_statuses.items()}
        yield _counter("attendant_http_responses", ("status",), sorted(responses.items()))
        yield _gauge(
            "attendant_tls_certificate_expiry_timestamp_seconds", numbers.certificate_ends_s()
        )
        yield _gauge("attendant_batches_unfinished", numbers.num_batches())
        results = {(result,): numbers.batch_lines[result] for result in RESULTS}
        yield _counter("attendant_batch_lines", ("result",), results.items())
        refusals = {(bound,): numbers.refusals[bound] for bound in BOUNDS}
        yield _counter("attendant_calls_refused", ("bound",), refusals.items())
        loads = sorted(dict(numbers.loads).items())
        yield _counter("attendant_model_loads", ("model", "outcome"), loads)
        yield InfoMetricFamily("attendant_build", HELPS["attendant_build"], numbers.build)


def _gauge(name: str, value: float | None) -> GaugeMetricFamily:
    """A gauge without labels; it has no sample where there is no value."""
    gauge = GaugeMetricFamily(name, HELPS[name])
    if value is not None:
        gauge.add_metric((), float(value))
    return gauge


def _counter(
    name: str, labels: tuple[str, ...], counts: Iterable[tuple[tuple[str, ...], int]]
) -> CounterMetricFamily:
    """A counter with a sample for each combination of labels."""
    counter = CounterMetricFamily(name, HELPS[name], labels=labels)
    for values, count in counts:
        counter.add_metric(values, count)
    return counter
