"""What is documented is what exists: settings, metrics, and the modules on the map."""

import re
from dataclasses import Field, fields
from pathlib import Path

import pytest

from service.metrics import Metrics
from service.settings import Settings

ROOT = Path(__file__).parents[2]


def _rows(document: str) -> dict[str, list[str]]:
    """Cells of a document's table rows by the first, without their backticks."""
    rows = {}
    for line in (ROOT / "docs" / document).read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            first, *cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            rows[first] = cells
    return rows


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_every_setting_is_documented_with_its_default(setting: Field[object]) -> None:
    flag = "--" + setting.name.replace("_", "-")
    assert _rows("settings.md")[flag][0] == str(setting.default)


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    metrics = Metrics()
    metrics.for_model("m", 1)
    endings = {"counter": "_total", "info": "_info"}
    exposed = {metric.name + endings.get(metric.type, "") for metric in metrics.registry.collect()}
    documented = {
        name for name in _rows("metrics.md") if name.startswith(("nv_", "attendant_", "process_"))
    }
    assert documented == exposed


def test_map_of_modules_names_every_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\w+\.py", text)) | {"__init__.py"}
    packages = ("service", "service/generation", "export", "models", "loadtests")
    modules = {path.name for package in packages for path in (ROOT / package).glob("*.py")}
    assert modules <= named
