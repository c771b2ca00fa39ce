"""The Helm chart, rendered in this process by Helm's own library: no cluster, no network."""

from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/attendant"
VALUES = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))
NAMESPACE = "serving"

Object = dict[str, Any]


@cache
def _chart(folder: Path) -> helm_python.Chart:
    return helm_python.Chart.load(folder)


def read_values(name: str) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((CHART / "ci" / name).read_text(encoding="utf-8"))
    return values


def render_files(
    values: dict[str, Any],
    release: str = "demo",
    namespace: str = NAMESPACE,
    chart: Path = CHART,
) -> dict[str, str]:
    """Texts by template, without the folder. Raises `helm_python.HelmError` as Helm would."""
    texts = _chart(chart).render(values, name=release, namespace=namespace)
    return {path.removeprefix("attendant/templates/"): text for path, text in texts.items()}


def render(values: dict[str, Any], release: str = "demo", chart: Path = CHART) -> list[Object]:
    """Every object that an installation with these values makes, its test included."""
    return [
        one
        for path, text in render_files(values, release, chart=chart).items()
        if path.endswith(".yaml")
        for one in yaml.safe_load_all(text)
        if one
    ]


def render_named(name: str) -> list[Object]:
    return render(read_values(name))
