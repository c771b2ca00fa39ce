"""Queries of rules and dashboards to Prometheus, and the metrics that they read."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/rules/attendant.yml"
# What is no metric's name: texts, label matchers, ranges, and lists of labels.
BESIDES = re.compile(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring)\s*\([^)]*\)')
# Names that no bracket follows: those would be functions.
NAMES = re.compile(r"\b([a-zA-Z_:][\w:]*)\b(?!\s*\()")
KEYWORDS = {"and", "or", "unless", "bool", "group_left", "group_right", "offset", "inf", "nan"}


@dataclass(frozen=True)
class Query:
    """An expression, and its place: a rule's name, or dashboard, panel and legend."""

    where: str
    expression: str

    @property
    def names(self) -> set[str]:
        """Names of the metrics that it reads."""
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


def recorded() -> set[str]:
    return {rule["record"] for rule in rules() if "record" in rule}


def read_names() -> Iterator[tuple[str, set[str]]]:
    """Readers and their metrics, dashboards by their uid; through recorded rules, too."""
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
