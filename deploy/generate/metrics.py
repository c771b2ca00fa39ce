"""Tables of docs/reference/metrics.md: every metric with its help, unit, buckets and readers."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from deploy.generate import queries
from service.observe.generation import GenerationInstruments
from service.observe.metrics import Metrics
from service.observe.server import ServerCollector, ServerNumbers

ENDINGS = {"counter": "_total", "info": "_info"}
PAGES = {"attendant": "dashboard", "attendant-generation": "generation"}
# Readers outside of this repository.
OTHERS = {
    "nv_": "Triton's dashboards",
    "attendant_requests_waiting": "autoscaler",
    "attendant_requests_running": "autoscaler",
    "attendant_requests_refused": "people",
    "attendant_batch": "people",
}
# The unit of a metric by its name: the first pattern that the name has.
UNITS = {
    "timestamp_seconds|start_time_seconds": "seconds since 1970",
    "_seconds|_secs": "seconds",
    "_us$|duration_per_model": "microseconds",
    "bytes": "bytes",
    "ratio|perc": "share, 0 to 1",
    "_(ready|live)$": "0 or 1",
    "tokens|prefix_cache|store_hits": "tokens",
    "rows|inference_count": "rows",
    "": "number",
}


def tables() -> Iterator[str]:
    """Lines of one table for each family of names."""
    metrics = Metrics()
    metrics.for_generation("m", 1)
    all_families = list(metrics.registry.collect())
    of_server = {each.name for each in ServerCollector(ServerNumbers()).collect()}
    registry = CollectorRegistry()
    GenerationInstruments(registry)
    of_generation = {each.name for each in registry.collect()}
    groups: dict[str, list[Metric]] = {
        title: []
        for title in ("Triton's names", "The server's", "Requests and batches", "Generation")
    }
    for family in all_families:
        if family.name.startswith("nv_"):
            groups["Triton's names"].append(family)
        elif family.name in of_server or family.name.startswith("process_"):
            groups["The server's"].append(family)
        elif family.name in of_generation:
            groups["Generation"].append(family)
        else:
            groups["Requests and batches"].append(family)
    readers = _readers()
    for title, families in groups.items():
        yield from _table(title, families, readers)


def _table(title: str, families: Iterable[Metric], readers: dict[str, set[str]]) -> Iterator[str]:
    yield f"\n### {title}\n"
    yield "| name | kind | meaning | unit | buckets | read by |"
    yield "|---|---|---|---|---|---|"
    for family in families:
        name = family.name + ENDINGS.get(family.type, "")
        others = [reader for start, reader in OTHERS.items() if name.startswith(start)]
        pages = [page for page in PAGES.values() if page in readers[name]]
        alerts = sorted(readers[name] - set(pages))
        read_by = ", ".join([*pages, *alerts, *others]) or "people"
        kind = "untyped" if family.type == "unknown" else family.type
        cells = [family.documentation.rstrip("."), _unit(family.name), _buckets(family), read_by]
        yield f"| `{name}` | {kind} | {' | '.join(cells)} |"


def _readers() -> dict[str, set[str]]:
    """Dashboards and alerts, by the metrics that they read, directly or by recorded rules."""
    readers: dict[str, set[str]] = defaultdict(set)
    for reader, names in queries.read_names():
        for name in names:
            readers[name].add(PAGES.get(reader, reader.removeprefix("Attendant")))
    return readers


def _unit(name: str) -> str:
    return next(unit for pattern, unit in UNITS.items() if re.search(pattern, name))


def _buckets(family: Metric) -> str:
    """The number of a histogram's buckets without infinity, the least and the greatest."""
    bounds = [each.labels["le"] for each in family.samples if each.name.endswith("_bucket")]
    finite = [float(bound) for bound in bounds if bound != "+Inf"]
    return f"{len(finite)}, {finite[0]:.10g} to {finite[-1]:.10g}" if finite else ""
