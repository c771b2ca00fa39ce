"""The metrics of the process as a whole: readiness, use of its bounds, refusals.

They are read from plain numbers at a scrape; nothing is counted twice, and no call pays for it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
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
    refusals: Counter[Bound] = field(default_factory=Counter)  # before a model is looked for
    loads: Counter[tuple[str, Outcome]] = field(default_factory=Counter)  # by model
    build: dict[str, str] = field(default_factory=dict)  # versions of what serves


class ServerCollector(Collector):
    """The numbers under their names."""

    def __init__(self, numbers: ServerNumbers) -> None:
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        numbers = self._numbers
        for name, text, value in (
            ("attendant_ready", "Whether the server says that it is ready", numbers.is_ready()),
            ("attendant_live", "Whether the server says that it lives", numbers.is_live()),
            (
                "attendant_event_loop_gap_seconds",
                "Longest time of the last minutes for which the event loop stood still",
                numbers.loop_gap_s(),
            ),
            ("attendant_bytes_in_flight", "Bytes of open calls", numbers.num_bytes()),
            ("attendant_models_unserved", "Models wanted and not served", numbers.num_unserved()),
        ):
            yield GaugeMetricFamily(name, text, float(value))
        calls = GaugeMetricFamily(
            "attendant_calls_in_flight", "Calls that are open", labels=("protocol",)
        )
        for protocol, count in numbers.num_calls().items():
            calls.add_metric((protocol,), count)
        yield calls
        begun = CounterMetricFamily(
            "attendant_calls", "Calls begun, without probes and scrapes", labels=("protocol",)
        )
        for protocol, count in numbers.num_begun().items():
            begun.add_metric((protocol,), count)
        yield begun
        responses = CounterMetricFamily(
            "attendant_http_responses", "Answers over HTTP, by status", labels=("status",)
        )
        for status, count in sorted(numbers.http_statuses.items()):
            responses.add_metric((str(status),), count)
        yield responses
        end = GaugeMetricFamily(
            "attendant_tls_certificate_expiry_timestamp_seconds",
            "When the certificate of the gRPC port ends",
        )
        if (ends_s := numbers.certificate_ends_s()) is not None:
            end.add_metric((), ends_s)
        yield end
        refused = CounterMetricFamily(
            "attendant_calls_refused",
            "Calls refused before a model was looked for",
            labels=("bound",),
        )
        for bound in BOUNDS:
            refused.add_metric((bound,), numbers.refusals[bound])
        yield refused
        loads = CounterMetricFamily(
            "attendant_model_loads", "Loads of models, by outcome", labels=("model", "outcome")
        )
        for (model, outcome), count in sorted(dict(numbers.loads).items()):
            loads.add_metric((model, outcome), count)
        yield loads
        yield InfoMetricFamily("attendant_build", "What serves", numbers.build)
