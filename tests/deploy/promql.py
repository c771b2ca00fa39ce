"""Names of the server's metrics, and Prometheus's programs, for tests of rules and dashboards."""

import shutil
from pathlib import Path

import pytest

from service.observe.metrics import Metrics

SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "info": ("_info",)}
ADDED_BY_PROMETHEUS = {"up", "ALERTS"}


def exposed() -> set[str]:
    """Names of every sample that a server may show."""
    metrics = Metrics()
    metrics.for_model("m", 1)
    return {
        family.name + suffix
        for family in metrics.registry.collect()
        for suffix in SUFFIXES.get(family.type, ("",))
    }


def program(name: str) -> Path:
    """`prometheus` or `promtool`; `.ci/run` installs them, or fails."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is missing: run `make prometheus`")
    return Path(path)
