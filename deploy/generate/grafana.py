"""Grafana's form of a dashboard.

A dashboard is rows of panels, a panel its title, unit, and queries by legend. What stays the same
in thousands of lines of JSON is said once.
"""

from dataclasses import dataclass
from typing import Any, Literal

WIDTH, COLUMNS, HEIGHT = 24, 3, 8  # of Grafana's grid, of ours, and of a panel
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """A graph over time; or of the present a number, or a table of labels and value."""

    title: str
    unit: str
    queries: dict[str, str]  # expression by legend
    text: str  # the tooltip of the title: the meaning, and the values that need attention
    kind: Literal["timeseries", "stat", "table"] = "timeseries"


@dataclass(frozen=True)
class Dashboard:
    """A page, its panels by row."""

    uid: str
    title: str
    rows: dict[str, list[Panel]]


def page_of(page: Dashboard) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in page.rows.items():
        header = {"type": "row", "title": title, "panels": []}
        panels.append(header | {"gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
        for index, panel in enumerate(row):
            x = index % COLUMNS * (WIDTH // COLUMNS)
            top = y + 1 + index // COLUMNS * HEIGHT
            place = {"x": x, "y": top, "w": WIDTH // COLUMNS, "h": HEIGHT}
            panels.append(_panel(panel) | {"gridPos": place})
        y += 1 + -(-len(row) // COLUMNS) * HEIGHT
    return {
        "uid": page.uid,
        "title": page.title,
        "tags": ["attendant"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,  # one cursor for all
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "title": "Attendant", "tags": ["attendant"]}],
        "templating": {"list": _variables()},
        "panels": [{"id": number} | panel for number, panel in enumerate(panels, start=1)],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + n),
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            | ({"format": "table", "instant": True} if panel.kind == "table" else {})
            for n, (legend, query) in enumerate(panel.queries.items())
        ],
    }
    if panel.kind == "table":
        without_time = {"id": "organize", "options": {"excludeByName": {"Time": True}}}
        made["transformations"] = [without_time]
    return made


def _variables() -> list[dict[str, Any]]:
    """Choices of a reader: the source; then releases, servers and models, several or all."""
    several = {"datasource": SOURCE, "refresh": 2, "multi": True, "includeAll": True}
    chosen = {"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}
    release = 'namespace=~"$namespace",job=~"$job"'
    queries = {
        "namespace": "label_values(attendant_ready, namespace)",
        "job": 'label_values(attendant_ready{namespace=~"$namespace"}, job)',
        "instance": f"label_values(attendant_ready{{{release}}}, instance)",
        "model": f"label_values(nv_inference_count{{{release}}}, model)",
    }
    return [{"name": "datasource", "type": "datasource", "query": "prometheus"}] + [
        {"name": name, "type": "query", "query": query} | several | chosen
        for name, query in queries.items()
    ]
