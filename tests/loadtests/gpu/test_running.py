"""Sections of the GPU check are run apart, kept, skipped and reported, whatever they do."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtests.gpu.__main__ import app
from loadtests.gpu.claims import at_least, at_most
from loadtests.gpu.context import Run
from loadtests.gpu.report import write_report
from loadtests.gpu.running import FAILED, keep, read_records, run_all
from loadtests.gpu.sections import SECTIONS, Section, chosen

MADE_UP = "tests.loadtests.gpu.made_up"
COUNTS = Section(1, "counts", "Counting", f"{MADE_UP}.counts", 0.5)
RAISES = Section(2, "raises", "Raising", f"{MADE_UP}.raises", 0.2)
DIES = Section(3, "dies", "Dying", f"{MADE_UP}.dies", 0.2)
WRONG = Section(4, "wrong", "Being wrong", f"{MADE_UP}.wrong", 0.1)
ABSENT = Section(5, "absent", "Being absent", f"{MADE_UP}.absent", 0.1)
LINGERS = Section(6, "lingers", "Lingering", f"{MADE_UP}.lingers", 0.5)
ALL = (COUNTS, RAISES, DIES, WRONG, ABSENT)


def run_in(folder: Path) -> Run:
    return Run(folder, "cpu", is_tiny=True)


def test_a_section_that_raises_dies_or_is_absent_is_recorded_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    run = run_in(tmp_path)
    order = (RAISES, DIES, ABSENT, WRONG, COUNTS)
    assert not run_all(run, order, [1, 2, 3, 4, 5], 60, is_again=False)
    records = read_records(run, order)
    assert {number for number, record in records.items() if record["state"] == FAILED} == {2, 3, 5}
    assert "RuntimeError: 2 raises was made to fail" in records[2]["error"]
    assert "Traceback" in records[2]["error"]
    assert "ended with 7" in records[3]["error"]
    assert "No module named" in records[5]["error"]
    assert records[1]["findings"]["summary"] == ["It ran."]
    report = (tmp_path / "report.md").read_text()
    head = report[: report.index("## 1. Counting")]
    assert "2 raises was made to fail" in head
    assert "error | of all: nan, expected at most 1 (section 4)" in head
    assert "| speed | 1 | at least 2 | not measured here |" in head
    assert r"| error \| of all | nan | at most 1 | **no** |" in report
    assert "It ran." in report[report.index("## 1. Counting") :]
    saved = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert [each["number"] for each in saved["sections"]] == [2, 3, 5, 4, 1]


def test_a_section_that_does_not_end_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    """Twice what is left of 2 s, and 4 s of grace; those before and behind it are done.

    The first section waits for imports, the others are forks of a process that has done these.
    """
    run = run_in(tmp_path)
    order = (COUNTS, LINGERS, replace(COUNTS, number=7))
    assert not run_all(run, order, [1, 6, 7], 2, is_again=False, grace_s=4)
    records = read_records(run, order)
    assert records[6]["state"] == FAILED
    assert re.match(r"it was stopped after \d+ s, having [01] s", records[6]["error"])
    assert records[1]["state"] == records[7]["state"] == "done"
    for process in (run.work / "lingering").read_text().split():
        state = Path(f"/proc/{process}/stat")
        assert not state.exists() or state.read_text().split()[2] == "Z"


def test_a_second_run_skips_what_is_done_and_repeats_what_failed(tmp_path: Path) -> None:
    """A missed goal is no failure."""
    run = run_in(tmp_path)
    assert run_all(run, [COUNTS], [1], 60, is_again=False)
    assert run_all(run, [COUNTS], [1], 60, is_again=False)
    runs = run.work / "runs"
    assert runs.read_text() == "x"
    assert run_all(run, [COUNTS], [1], 60, is_again=True)
    assert runs.read_text() == "xx"
    mended = replace(RAISES, module=COUNTS.module)
    assert not run_all(run, [RAISES], [2], 60, is_again=False)
    assert run_all(run, [mended], [2], 60, is_again=False)
    assert runs.read_text() == "xxx"


def test_a_record_of_another_device_or_size_is_not_taken(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    keep(tmp_path / COUNTS.filename, {"device": "cuda", "is_tiny": True, "state": "done"})
    assert not read_records(run, [COUNTS])
    (tmp_path / COUNTS.filename).write_text('{"device": "cp')
    assert not read_records(run, [COUNTS])


def test_a_folder_with_results_of_another_device_or_size_is_left_as_it_is(tmp_path: Path) -> None:
    section = SECTIONS[1]
    for other in ({"device": "cuda", "is_tiny": True}, {"device": "cpu", "is_tiny": False}):
        keep(tmp_path / section.filename, other | {"state": "done"})
        flags = "--device", "cpu", "--tiny", "--out", str(tmp_path)
        result = CliRunner().invoke(app, flags, env={"COLUMNS": "200"})
        assert result.exit_code == 2
        assert "has results of another device or size, sections 2: choose" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == [section.filename]


def test_flags_take_no_value_in_the_help() -> None:
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    assert "<bool>" not in text
    assert all(flag in text.split() for flag in ("--again", "--tiny", "--replace"))


def test_a_goal_is_met_or_missed_on_a_gpu_only(tmp_path: Path) -> None:
    claims = [at_least("speed", 1, 2, kind="goal"), at_least("rate", 3, 2, kind="goal")]
    run = Run(tmp_path, "cuda", is_tiny=False)
    record = {"findings": {"claims": claims}, "error": "", "sources": "a", "ended": "b"}
    records = {1: record | {"seconds": 1.0, "share_s": 2.0}}
    text = write_report(run, [COUNTS], records).read_text()
    assert "| speed | 1 | at least 2 | missed |" in text
    assert "| rate | 3 | at least 2 | met |" in text


def test_a_report_of_different_sources_says_so(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run_all(run, [COUNTS], [1], 60, is_again=False)
    assert "different sources" not in (tmp_path / "report.md").read_text()
    record = json.loads((tmp_path / COUNTS.filename).read_text())
    other = replace(COUNTS, number=6)
    keep(tmp_path / other.filename, record | {"number": 6, "sources": "0123456789"})
    run_all(run, [COUNTS, other], [1, 6], 60, is_again=False)
    assert (
        "different sources, with the digests 0123456789, " in (tmp_path / "report.md").read_text()
    )


def test_a_section_has_its_share_of_the_time_that_is_left(tmp_path: Path) -> None:
    """Of 60 s, weight 0.5 of 1.0 in all is 30 s; what sections before it save is shared too."""
    run = run_in(tmp_path)
    run_all(run, [COUNTS, replace(RAISES, weight=0.5)], [1, 2], 60, is_again=False)
    records = read_records(run, [COUNTS, RAISES])
    assert 28 < records[1]["share_s"] <= 30
    assert records[1]["findings"]["left_s"] <= records[1]["share_s"]
    assert 45 < records[2]["share_s"] <= 60


def test_a_figure_that_is_not_a_number_does_not_hold() -> None:
    claim = at_most("error", float("nan"), 1.0, "s")
    assert not claim["holds"]
    assert claim["figure"] is None
    assert (claim["found"], claim["expected"]) == ("nan s", "at most 1 s")
    assert at_most("error", 1.0, 1.0)["holds"]
    assert not at_most("error", float("inf"), 1.0)["holds"]


def test_sections_are_chosen_by_number() -> None:
    assert chosen("", ALL) == [1, 2, 3, 4, 5]
    assert chosen("4, 2", ALL) == [2, 4]
    for wrong in ("9", "a", "1,-2", ","):
        with pytest.raises(ValueError, match="expected some of 1, 2, 3, 4, 5"):
            chosen(wrong, ALL)


def test_every_section_has_a_number_of_its_own() -> None:
    numbers = [section.number for section in SECTIONS]
    assert numbers == sorted(set(numbers))
