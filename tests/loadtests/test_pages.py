"""The pages of measurements are what their result files say, and short where they should be."""

import re
from pathlib import Path

import pytest

from loadtests.measure.measures import MEASURES
from loadtests.measure.results import PUBLISHED, read_all, write
from loadtests.pages import DOCS, PAGES, figure_of, first_page, main, pages, slug

RESULTS = read_all()
PUBLIC = pages(RESULTS)
FIGURES = first_page()
MOST_WORDS = 1_000  # of the first page


@pytest.mark.parametrize("name", PUBLIC)
def test_a_page_is_what_the_result_files_say(name: str) -> None:
    """`python -m loadtests.pages` writes it; a change of a figure is a change of its file."""
    assert (DOCS / name).read_text(encoding="utf-8") == PUBLIC[name]


def test_there_are_no_pages_without_results() -> None:
    assert {f"benchmarks/{path.name}" for path in (DOCS / "benchmarks").iterdir()} == {
        name for name in PUBLIC if name != "benchmarks.md"
    }


def test_the_first_page_is_short() -> None:
    assert len(PUBLIC["benchmarks.md"].split()) <= MOST_WORDS
    assert 8 <= len(FIGURES) <= 12


@pytest.mark.parametrize("wanted", FIGURES, ids=lambda each: each.result)
def test_a_row_of_the_first_page_has_one_figure_of_a_file_and_the_command_that_repeats_it(
    wanted: object,
) -> None:
    (each,) = (one for one in FIGURES if one is wanted)
    result = RESULTS[each.result]
    figure = figure_of(result, each)
    (line,) = (row for row in PUBLIC["benchmarks.md"].splitlines() if each.question in row)
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    assert re.fullmatch(r"\*\*[\d.,]+\*\*( (%|s|ms))?", cells[1]), cells[1]
    assert cells[2] == figure.range
    assert (figure.goal is None) == (cells[4] == "")
    assert f"`{each.command}`" in cells[5]
    assert each.command.startswith(" ".join(result.commands[-1].split()[:3]))


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_names_its_command_machine_date_and_where_it_comes_from(
    name: str, tmp_path: Path
) -> None:
    """Without the rounds of its run a file says that it was carried over."""
    result = RESULTS[name]
    assert result.commands
    assert result.machine["cpu"]
    assert re.search(r"\d{4}-\d\d-\d\d", result.date)
    assert result.figures
    assert result.rounds or "Carried over" in result.origin
    assert result.page in PAGES
    written = write(result, tmp_path)
    assert written.read_text() == (PUBLISHED / written.name).read_text()


def test_every_measure_has_a_subject() -> None:
    assert {measure.page for measure in MEASURES} <= set(PAGES)
    assert len({slug(title) for title in PAGES}) == len(PAGES)


def test_pages_of_subjects_without_results_go(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "gone.md").touch()
    main(PUBLISHED, tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")} == set(PUBLIC)
