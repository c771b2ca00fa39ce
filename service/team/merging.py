"""Counts of several processes, as if one had counted. Pure: pages, messages and plain values.

Counters and histograms are summed, and so are gauges, but for those named here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

OTHER_GAUGES: dict[str, Callable[[Sequence[float]], float]] = {
    "attendant_ready": min,
    "attendant_live": min,
    "attendant_event_loop_gap_seconds": max,
    "attendant_models_unserved": max,
    "attendant_tls_certificate_expiry_timestamp_seconds": min,
    "attendant_build_info": max,
    "attendant_kv_cache_usage_perc": lambda values: sum(values) / len(values),
    "nv_model_load_duration_secs": max,
    "process_start_time_seconds": min,
    "process_max_fds": min,
}
# What tells one of several statistics from another, by the name of their message.
KEYS = {
    "ModelStatistics": ("name", "version"),
    "InferBatchStatistics": ("batch_size",),
    "MemoryUsage": ("type", "id"),
}
LATEST = ("last_inference",)  # times, of which the last one holds


class Merged(Collector):
    """The metrics of all processes, whose pages are read at each scrape."""

    def __init__(self, pages: Callable[[], Iterable[bytes]]) -> None:
        self._pages = pages

    def collect(self) -> Iterable[Metric]:
        return merged_families(self._pages())


def merged_page(pages: Iterable[bytes]) -> bytes:
    """A page of metrics out of those of each process, in Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Merged(lambda: pages))
    return generate_latest(registry)


def merged_families(pages: Iterable[bytes]) -> Iterable[Metric]:
    """The metrics of pages by their names, with the samples of all processes as one."""
    families: dict[str, Metric] = {}
    values: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[float]] = {}
    for page in pages:
        for family in text_string_to_metric_families(page.decode()):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                key = family.name, sample.name, tuple(sample.labels.items())
                values.setdefault(key, []).append(sample.value)
    for (family_name, name, labels), of_processes in values.items():
        merge = OTHER_GAUGES.get(family_name, sum)
        families[family_name].add_sample(name, dict(labels), merge(of_processes))
    return families.values()


def merged_numbers(numbers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The live numbers of all processes; the first one's are those of the process that is asked.

    See `observe/live.py` for what they are.
    """
    own = numbers[0]
    return {
        **own,
        "is_ready": all(each["is_ready"] for each in numbers),
        **{
            name: dict(_summed(each[name] for each in numbers))
            for name in ("calls", "calls_in_flight", "requests", "generation")
        },
        "calls_refused": sum(each["calls_refused"] for each in numbers),
        "latency": _summed_rows((each["latency"] for each in numbers), "below_seconds"),
        "batches": _summed_rows((each["batches"] for each in numbers), "rows"),
        "models": sorted({model for each in numbers for model in each["models"]}),
    }


def add_statistics(total: Message, other: Message) -> None:
    """Add Triton's statistics of another process to a message of the same type."""
    for field in total.DESCRIPTOR.fields:
        mine, others = getattr(total, field.name), getattr(other, field.name)
        if field.message_type is None:
            if field.name in LATEST:
                setattr(total, field.name, max(mine, others))
            elif field.cpp_type != FieldDescriptor.CPPTYPE_STRING and not _is_key(field):
                setattr(total, field.name, mine + others)
        elif field.message_type.GetOptions().map_entry:
            for key in others:
                add_statistics(mine[key], others[key])
        elif field.is_repeated:
            _add_rows(mine, others, KEYS[field.message_type.name])
        elif other.HasField(field.name):
            add_statistics(mine, others)


def _add_rows(mine: Any, others: Any, key: tuple[str, ...]) -> None:  # noqa: ANN401
    by_key = {tuple(getattr(row, name) for name in key): row for row in mine}
    for row in others:
        same = by_key.get(tuple(getattr(row, name) for name in key))
        if same is None:
            mine.add().CopyFrom(row)
        else:
            add_statistics(same, row)


def _is_key(field: FieldDescriptor) -> bool:
    return field.name in KEYS.get(field.containing_type.name, ())


def _summed(counts: Iterable[dict[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return total


def _summed_rows(tables: Iterable[list[dict[str, Any]]], key: str) -> list[dict[str, Any]]:
    """Rows with a count each, by what they count; None is behind every number."""
    counts: Counter[float | None] = Counter()
    for table in tables:
        counts.update({row[key]: row["count"] for row in table})
    ordered = sorted(counts.items(), key=lambda each: (each[0] is None, each[0]))
    return [{key: bound, "count": count} for bound, count in ordered]
