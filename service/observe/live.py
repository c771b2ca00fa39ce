"""The numbers of a server now, for a page that asks every second: sums over all models.

They count since the start of the process, so that each reader makes the difference between two
answers, and readers do not disturb each other. A scrape of all metrics takes longer and has more.
"""

import time
from collections import Counter
from typing import Any

from service.observe.metrics import Metrics

LATENCY = "attendant_request_seconds"


def live_numbers(metrics: Metrics) -> dict[str, Any]:
    """Plain values for JSON. It counts what is not counted yet, so it belongs on a thread."""
    server = metrics.server
    failures: Counter[str] = Counter()
    rows_of_batches: Counter[int] = Counter()
    latencies = Counter[float]()
    num_answered = 0
    for model in metrics.models:
        with model.reading() as statistics:
            num_answered += statistics.success.count
            failures.update(statistics.failures)
            for rows, durations in statistics.by_batch_size.items():
                rows_of_batches[rows] += durations.compute_infer.count
            latencies.update(model.histograms[LATENCY].counts())
    num_cancelled = failures.pop("CANCELED", 0)
    return {
        "version": server.build.get("version", ""),
        "time_seconds": time.monotonic(),
        "is_ready": server.is_ready(),
        "calls": server.num_begun(),
        "calls_in_flight": server.num_calls(),
        "calls_refused": server.refusals.total(),
        "requests": {
            "answered": num_answered,
            "failed": failures.total(),
            "cancelled": num_cancelled,
            "waiting": sum(model.num_waiting() for model in metrics.models),
        },
        # Requests by the bound that they stayed below, the last without one.
        "latency": [{"below_seconds": bound, "count": n} for bound, n in _by_bound(latencies)],
        "batches": [{"rows": rows, "count": n} for rows, n in sorted(rows_of_batches.items())],
        "generation": _generation(metrics),
        "models": sorted(
            f"{model.labels['model']}/{model.labels['version']}"
            for model in metrics.models
            if model.is_watched
        ),
    }


def _by_bound(latencies: Counter[float]) -> list[tuple[float | None, int]]:
    return [(None if bound == float("inf") else bound, n) for bound, n in sorted(latencies.items())]


def _generation(metrics: Metrics) -> dict[str, int]:
    """Tokens made, and the places of all KV caches."""
    all_ = [model.generation for model in metrics.models if model.generation is not None]
    caches = [each.cache for each in all_ if each.cache is not None]
    return {
        "tokens": sum(each.num_tokens for each in all_),
        "slots": sum(cache.num_places for cache in caches),
        "slots_used": sum(cache.num_taken_places for cache in caches),
        "cached_tokens": sum(cache.num_tokens + cache.num_idle_tokens for cache in caches),
    }
