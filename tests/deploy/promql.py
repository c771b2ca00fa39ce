"""What rules and dashboards ask Prometheus, and which of it the server has."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.observe.metrics import Metrics
from tests.deploy.dockerfile import ROOT

RULES = ROOT / "deploy/prometheus/rules/attendant.yml"
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",), "info": ("_info",)}
ADDED_BY_PROMETHEUS = {"up", "ALERTS"}
# What is no metric's name: texts, label matchers, ranges, and lists of labels.
BESIDES = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)')
# Names that no bracket follows: those would be functions.
NAMES = re.compile(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()")
KEYWORDS = {"and", "or", "unless", "bool", "group_left", "group_right", "offset", "inf", "nan"}


@dataclass(frozen=True)
class Query:
    """An expression, and where it stands."""

    where: str
    expression: str

    @property
    def names(self) -> set[str]:
        """Of the metrics that it reads."""
        return set(NAMES.findall(BESIDES.sub(" ", self.expression))) - KEYWORDS


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def rule_queries() -> list[Query]:
    return [Query(rule.get("record") or rule["alert"], rule["expr"]) for rule in rules()]


def dashboard_queries() -> list[Query]:
    return [
        Query(f"{page['uid']}: {panel['title']}: {target['legendFormat']}", target["expr"])
        for page in pages()
        for panel in page["panels"]
        for target in panel.get("targets", [])
    ]


def pages() -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def exposed() -> set[str]:
    """Names of every sample that a server may show."""
    metrics = Metrics()
    metrics.for_model("m", 1)
    return {
        family.name + suffix
        for family in metrics.registry.collect()
        for suffix in SUFFIXES.get(family.type, ("",))
    }


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def read_names() -> Iterator[tuple[str, set[str]]]:
    """Who reads which metrics, dashboards by their uid; through recorded rules, too."""
    sources = {query.where: query.names for query in rule_queries()}

    def metrics_of(names: set[str]) -> set[str]:
        found: set[str] = set()
        for name in names:
            inner = {re.sub("_(bucket|sum|count)$", "", name)}
            found |= metrics_of(sources[name]) if name in sources else inner
        return found

    for query in dashboard_queries() + rule_queries():
        if query.where not in recorded():
            yield query.where.split(":")[0], metrics_of(query.names)


def program(name: str) -> Path:
    """`prometheus` or `promtool`; `.ci/run` installs them, or fails."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is missing: run `make prometheus`")
    return Path(path)
