"""Sections of the GPU check are run apart, kept, skipped, stopped and reported."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loadtests.gpu.__main__ import app
from loadtests.gpu.context import Context, Run, write_json
from loadtests.gpu.kinds import KINDS, MOST_USED, SERVED
from loadtests.gpu.models import needed
from loadtests.gpu.report import write_report
from loadtests.gpu.sections import SECTIONS, SHAPES, TINY_SHAPES, Section, chosen, shapes_of
from loadtests.gpu.supervisor import Stop, read_records, run_all

MADE_UP = "tests.gpu.made_up"
COUNTS = Section(1, "counts", "Counting", f"{MADE_UP}.counts:run", 0.5, 1.0)
RAISES = Section(2, "raises", "Raising", f"{MADE_UP}.raises:run", 0.2, 1.0)
DIES = Section(3, "dies", "Dying", f"{MADE_UP}.dies:run", 0.2, 1.0)
WRONG = Section(4, "wrong", "Being wrong", f"{MADE_UP}.wrong:run", 0.1, 1.0)
ABSENT = Section(5, "absent", "Being absent", f"{MADE_UP}.absent:run", 0.1, 1.0)
LINGERS = Section(6, "lingers", "Lingering", f"{MADE_UP}.lingers:run", 0.001, 1.0)
BUDGET_S = 600.0  # enough on a busy machine


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose sections need no exported models."""
    monkeypatch.setattr("loadtests.gpu.supervisor.PREPARED", "builtins:print")
    return Run(tmp_path, "cpu", is_tiny=True)


def checked(
    run: Run, *sections: Section, budget_s: float = BUDGET_S, is_again: bool = False
) -> tuple[int, dict[int, dict[str, Any]]]:
    """The exit code of a run of sections, and their records."""
    numbers = [section.number for section in sections]
    code = run_all(run, sections, numbers, time.monotonic() + budget_s, is_again=is_again)
    return code, read_records(run, sections)


def test_a_section_that_raises_dies_or_is_absent_is_recorded_and_the_others_go_on(run: Run) -> None:
    code, records = checked(run, RAISES, DIES, ABSENT, WRONG, COUNTS)
    assert code == 1
    assert {n for n, record in records.items() if record["state"] == "failed"} == {2, 3, 5}
    assert "RuntimeError: 2 raises was made to fail" in records[2]["error"]
    assert records[2]["findings"]["claims"][0]["claim"] == "what was found before it raised"
    assert "ended with 7" in records[3]["error"]
    assert "No module named" in records[5]["error"]
    report = (run.out / "report.md").read_text()
    head = report[: report.index("## 2. Raising")]
    assert "2 raises was made to fail" in head
    assert "error | of all: nan, expected at most 1 (section 4" in head
    assert "| speed | 1 | at least 2 | not measured here |" in head
    assert r"| error \| of all | nan | at most 1 | **no** |" in report
    assert "| none | not a number | 0.0123 |" in report
    saved = json.loads((run.out / "report.json").read_text(), parse_constant=pytest.fail)
    assert [each["number"] for each in saved["sections"]] == [2, 3, 5, 4, 1]


def test_a_section_that_does_not_end_is_stopped_with_all_that_it_started(run: Run) -> None:
    """It has about 1 s, and is ended 7 s later; the one before it waits for imports."""
    code, records = checked(run, COUNTS, LINGERS, replace(COUNTS, number=7))
    assert code == 1
    assert records[6]["state"] == "stopped"
    assert "it did not end by itself" in records[6]["error"]
    assert records[6]["findings"]["claims"][0]["claim"] == "it has begun"
    assert records[1]["state"] == records[7]["state"] == "done"
    for process in (run.work / "lingering").read_text().split():
        state = Path(f"/proc/{process}/stat")
        assert not state.exists() or state.read_text().split()[2] == "Z"


def test_nothing_is_run_behind_a_gate_that_fails(run: Run) -> None:
    code, records = checked(run, replace(WRONG, is_gate=True), COUNTS)
    assert code == 1
    assert records[1]["state"] == "not begun"
    assert "section 4 failed, and the others need what it checks" in records[1]["error"]
    assert not (run.work / "runs").exists()


def test_a_section_that_cannot_end_in_time_is_not_begun_and_a_shorter_one_is(run: Run) -> None:
    """60 s are not 90; what is left out is named, and is no failure."""
    code, records = checked(run, replace(WRONG, least_s=90.0), COUNTS, budget_s=60.0)
    assert code == 0
    assert records[4]["state"] == "not begun"
    assert "and it needs 90 s" in records[4]["error"]
    assert records[1]["state"] == "done"
    report = (run.out / "report.md").read_text()
    assert "- section 4, Being wrong: not begun: " in report


def test_a_process_that_starts_after_the_end_is_not_awaited_and_does_nothing(run: Run) -> None:
    stop, folder = Stop(time.monotonic() - 1.0), run.out / "made"
    process = stop.started("os:mkdir", folder)
    assert not stop.wait(process, time.monotonic() + 60.0)
    while process.exitcode is None:  # the limit of the test is its limit
        time.sleep(0.05)
    assert process.exitcode == 0
    assert not folder.exists()


def test_with_a_small_budget_the_first_sections_have_their_usual_time(run: Run) -> None:
    """Half of the usual 480 s is more than the 100 s that there are, less 8 for the ends."""
    _, records = checked(run, COUNTS, replace(RAISES, function=COUNTS.function), budget_s=100.0)
    assert 85 < records[1]["share_s"] <= 92
    assert 70 < records[2]["share_s"] <= 92


def test_what_a_section_saves_is_there_for_the_next(run: Run) -> None:
    """Of 600 s without 8 for the ends half is the first's; the second has all that is left."""
    _, records = checked(run, COUNTS, replace(RAISES, weight=0.5))
    assert 280 < records[1]["share_s"] <= 299
    assert records[1]["findings"]["left_s"] <= records[1]["share_s"]
    assert records[2]["share_s"] > 400
    assert "imports" in records[1]["parts_s"]


def test_a_second_run_skips_what_is_done_and_repeats_what_failed(run: Run) -> None:
    """A missed goal is no failure."""
    assert checked(run, COUNTS)[0] == 0
    assert checked(run, COUNTS)[0] == 0
    runs = run.work / "runs"
    assert runs.read_text() == "x"
    assert checked(run, COUNTS, is_again=True)[0] == 0
    assert runs.read_text() == "xx"
    assert checked(run, RAISES)[0] == 1
    assert checked(run, replace(RAISES, function=COUNTS.function))[0] == 0
    assert runs.read_text() == "xxx"


def test_a_record_of_another_device_or_size_is_not_taken(run: Run) -> None:
    write_json(run.out / COUNTS.filename, {"device": "cuda", "is_tiny": True, "state": "done"})
    assert not read_records(run, [COUNTS])
    (run.out / COUNTS.filename).write_text('{"device": "cp')
    assert not read_records(run, [COUNTS])


def test_a_folder_with_results_of_another_device_or_size_is_left_as_it_is(tmp_path: Path) -> None:
    section = SECTIONS[1]
    for other in ({"device": "cuda", "is_tiny": True}, {"device": "cpu", "is_tiny": False}):
        write_json(tmp_path / section.filename, other | {"state": "done"})
        flags = "--device", "cpu", "--tiny", "--out", str(tmp_path)
        result = CliRunner().invoke(app, flags, env={"COLUMNS": "200"})
        assert result.exit_code == 2
        assert "has results of another device or size, sections 2: choose" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == [section.filename]


def test_flags_take_no_value_in_the_help() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    assert "<bool>" not in text
    flags = ("--again", "--tiny", "--replace", "--budget", "--minutes", "--shapes", "--peers")
    assert all(flag in text.split() for flag in flags)


def test_a_goal_is_met_or_missed_on_a_gpu_only(tmp_path: Path) -> None:
    context = Context(Run(tmp_path, "cuda", is_tiny=False), "1 counts", 0.0)
    context.at_least("speed", 1, 2, kind="goal")
    context.at_least("rate", 3, 2, kind="goal")
    record = {
        "findings": context.findings,
        "error": "",
        "sources": "a",
        "ended": "b",
        "parts_s": {},
    }
    records = {1: record | {"seconds": 1.0, "share_s": 2.0, "state": "done"}}
    text = write_report(context.run, [COUNTS], records).read_text()
    assert "| speed | 1 | at least 2 | missed |" in text
    assert "| rate | 3 | at least 2 | met |" in text


def test_a_report_of_different_sources_says_so(run: Run) -> None:
    checked(run, COUNTS)
    assert "different sources" not in (run.out / "report.md").read_text()
    record = json.loads((run.out / COUNTS.filename).read_text())
    other = replace(COUNTS, number=6)
    write_json(run.out / other.filename, record | {"number": 6, "sources": "0123456789"})
    checked(run, COUNTS, other)
    report = (run.out / "report.md").read_text()
    assert "different sources, with the digests 0123456789, " in report


def test_a_figure_that_is_not_a_number_does_not_hold(run: Run) -> None:
    context = Context(run, "1 counts", 0.0)
    context.at_most("error", float("nan"), 1.0, "s")
    context.at_most("error", 1.0, 1.0)
    context.at_most("error", float("inf"), 1.0)
    claims = context.findings["claims"]
    assert [claim["holds"] for claim in claims] == [False, True, False]
    assert (claims[0]["found"], claims[0]["expected"]) == ("nan s", "at most 1 s")


def test_sections_and_shapes_are_chosen_by_number_and_by_name() -> None:
    assert chosen("", [COUNTS, RAISES]) == [1, 2]
    assert chosen("4, 2", SECTIONS) == [2, 4]
    for wrong in ("99", "a", "1,-2", ","):
        with pytest.raises(ValueError, match="expected some of 1, 2, 3, 4"):
            chosen(wrong, SECTIONS)
    assert shapes_of("", is_tiny=False) == SHAPES[:3]
    assert shapes_of("gpt2-xl, bert-large", is_tiny=False) == ("gpt2-xl", "bert-large")
    with pytest.raises(ValueError, match="--shapes: bert, expected some of bert-base"):
        shapes_of("bert", is_tiny=False)


def test_every_section_has_a_number_of_its_own() -> None:
    numbers = [section.number for section in SECTIONS]
    assert numbers == sorted(set(numbers))
    assert SECTIONS[0].is_gate


def test_models_are_exported_in_the_order_in_which_sections_need_them(tmp_path: Path) -> None:
    """Each once; those of section 5 before the networks of 6, also where it is the first."""
    run = Run(tmp_path, "cpu", is_tiny=True, shapes=TINY_SHAPES[:2])
    names = [model.name for model in needed(run, [5, 6, 8])]
    assert names == [*(f"{kind}-fp32" for kind in SERVED), *TINY_SHAPES[:2]]
    whole = [model.name for model in needed(run, range(1, 11))]
    assert whole[: len(MOST_USED)] == [f"{kind}-fp32" for kind in MOST_USED]
    assert whole[len(MOST_USED) :][:2] == list(TINY_SHAPES[:2])
    assert len(set(whole)) == len(whole) == len(KINDS) + 2 + 2, "and two in half precision"
    on_gpu = replace(run, device="cuda")
    assert {model.precision for model in needed(on_gpu, [4])} == {"fp16", "bf16"}
    assert [model.name for model in needed(on_gpu, [5])][len(SERVED) :] == [
        f"{kind}-bf16" for kind in SERVED
    ]
