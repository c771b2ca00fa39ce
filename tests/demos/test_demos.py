"""Every system of the lectures from nothing to an answered request, trained for seconds."""

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands.main import app
from demos.demo import run_demo
from demos.steps import Places
from demos.systems import DEMOS
from models.checkpoints.checkpoint import save_checkpoint
from tests.e2e.server import PLAIN
from tests.fakes.tiny import tiny_embedder

ROOT = Path(__file__).parents[2]
MINUTES = "answers", "bert", "dates"  # what they train has tests of its own


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the Makefile is, and what it built."""
    monkeypatch.chdir(ROOT)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name in MINUTES)) for name in DEMOS]
)
def test_a_demo_goes_from_nothing_to_an_answered_request(name: str, tmp_path: Path) -> None:
    answers: list[str] = []

    def run(arguments: Sequence[str]) -> None:
        answers.append(run_here(arguments))

    save_checkpoint(tiny_embedder(), tmp_path / "encoder")
    run_demo(
        DEMOS[name],
        Places(tmp_path / name, tmp_path / "encoder", tmp_path / "decoder"),
        run,
        is_brief=True,
    )
    assert len(answers) >= len(DEMOS[name].calls)
    assert all(answer.strip() for answer in answers[-len(DEMOS[name].calls) :])


def run_here(arguments: Sequence[str]) -> str:
    """What a command prints, run within this process: importing PyTorch once is enough."""
    program, *rest = arguments
    if program == "python":
        dash_m, module, *given = rest
        assert dash_m == "-m"
        import_module(module).main(given)
        return ""
    assert program == "attendant", f"`make test` has done {arguments}"
    result = CliRunner().invoke(app, rest, env=PLAIN, catch_exceptions=False)
    assert result.exit_code == 0, f"{arguments}: {result.output}"
    return result.stdout


def test_the_table_of_systems_has_every_demo() -> None:
    text = (ROOT / "docs/tutorial/lectures/README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`attendant demo (\w+)`", text)) == set(DEMOS)


def test_no_page_names_a_demo_that_is_not_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = (page.read_text(encoding="utf-8") for page in pages)
    assert {name for text in texts for name in re.findall(r"`attendant demo (\w+)`", text)} <= set(
        DEMOS
    )
