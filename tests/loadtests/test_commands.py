"""Every scenario by its one command, briefly: real servers over the default models."""

import json
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from loadtests.load.main import main
from loadtests.load.scenario import scenario_names

REPOSITORY = Path(__file__).parents[2] / "model_repository"


@pytest.mark.parametrize("name", scenario_names())
def test_a_scenario_runs_by_one_command_and_leaves_its_report(name: str, tmp_path: Path) -> None:
    app = Typer()
    app.command()(main)
    flags = "--brief", "--seconds", "2", "--repository", str(REPOSITORY), "--output", str(tmp_path)
    result = CliRunner().invoke(app, [name, *flags])
    assert result.exit_code == 0, result.output
    (folder,) = tmp_path.iterdir()
    report = json.loads((folder / "report.json").read_text())
    assert report["runs"][-1]["total"]["statuses"]["OK"] > 0
    assert (folder / "report.png").stat().st_size > 1_000
