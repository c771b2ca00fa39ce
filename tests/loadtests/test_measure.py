"""The harness of measurements: options, figures, result files; and that each measure is whole."""

import re
from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadtests.load.turns import Spread
from loadtests.measure import harness, records, results
from loadtests.measure.measures import MEASURES
from loadtests.measure.records import (
    CASE,
    FIRST,
    TIMES,
    Column,
    Figure,
    Measure,
    Options,
    Way,
    by_columns,
    option,
)

ROOT = Path(__file__).parents[2]
each_measure = pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeOptions(Options):
    """Seconds of a way."""

    slow_s: float = option(2.0, "Of the slow way.", min=0.1)


closed: list[str] = []


def fake_ways(options: FakeOptions, stack: ExitStack) -> dict[str, Way]:
    stack.callback(closed.append, "closed")
    return {
        "fast": lambda: {"seconds": 1.0, "rows": 4.0},
        "slow": lambda: {"seconds": options.slow_s, "rows": 4.0},
    }


FAKE = Measure(
    "fake",
    "One way beside another",
    "Fakes",
    FakeOptions,
    fake_ways,
    by_columns(
        Column("rows/s", "rows/seconds"),
        Column("over fast", "rows/seconds", over="fast", goals={"slow": 0.9}),
    ),
)


def test_a_run_takes_turns_and_leaves_its_figures_with_command_machine_and_rounds(
    tmp_path: Path,
) -> None:
    app = harness.program([FAKE, FAKE])
    arguments = ["fake", "--slow-s", "4", "--rounds", "2", "--output", str(tmp_path)]
    outcome = CliRunner().invoke(app, arguments)
    assert outcome.exit_code == 0, outcome.output
    assert "over fast" in outcome.output
    assert closed.pop() == "closed"
    result = results.read(tmp_path / "fake.json")
    assert {(each.row, each.column): each.median for each in result.figures} == {
        ("fast", "rows/s"): 4.0,
        ("slow", "rows/s"): 1.0,
        ("slow", "over fast"): 0.25,
    }
    assert [each.goal for each in result.figures] == [None, None, 0.9]
    assert not result.figures[-1].is_met
    assert result.machine["cores"]
    assert result.versions["onnxruntime"]
    assert result.date
    assert [len(turns) for turns in result.rounds.values()] == [2, 2]


def test_without_a_name_all_measures_are_listed_with_what_they_claim() -> None:
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(harness.program(MEASURES), []).output
    for measure in MEASURES:
        assert measure.name in shown
        assert measure.claim in shown


def test_an_option_out_of_its_bounds_is_refused_by_its_name() -> None:
    outcome = CliRunner(env={"COLUMNS": "200"}).invoke(
        harness.program([FAKE, FAKE]), ["fake", "--slow-s", "0"]
    )
    assert outcome.exit_code == 2
    assert "--slow-s" in outcome.output


def test_ratios_are_within_a_round_and_over_a_way_of_the_same_case() -> None:
    """A machine that is twice as slow in the second round changes both sides alike."""
    rounds = {
        f"1 row{CASE}a": [{"seconds": 1.0}, {"seconds": 2.0}],
        f"1 row{CASE}b": [{"seconds": 2.0}, {"seconds": 4.0}],
        f"8 rows{CASE}a": [{"seconds": 5.0}, {"seconds": 5.0}],
        f"8 rows{CASE}b": [{"seconds": 5.0}, {"seconds": 10.0}],
    }
    for over in ("a", FIRST):
        figures = by_columns(Column("time", "seconds", over=over))(rounds)
        assert figures == [
            Figure(f"1 row{CASE}b", "time", 2.0, 2.0, 2.0, TIMES),
            Figure(f"8 rows{CASE}b", "time", 1.5, 1.0, 2.0, TIMES),
        ]


def test_a_way_without_the_numbers_of_a_column_has_no_figure_in_it() -> None:
    rounds = {"a": [{"seconds": 1.0}], "b": [{"mib": 5.0}]}
    figures = by_columns(Column("s", "seconds"), Column("memory", "mib", "MiB"))
    assert [(each.row, each.column) for each in figures(rounds)] == [("a", "s"), ("b", "memory")]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.4649, TIMES, "1.46"),
        (1.5, TIMES, "1.50"),
        (0.05214, TIMES, "0.052"),
        (0.99791, "cosine", "0.9979"),
        (95.533, "%", "95.5"),
        (20_480.0, "", "20,500"),
        (3.0, "ms", "3"),
        (0.4712, "s", "0.471"),
    ],
)
def test_figures_have_as_many_digits_as_their_unit_deserves(
    value: float, unit: str, text: str
) -> None:
    assert str(Figure.of("row", "column", Spread(value, value, value), unit)) == text


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    figures = [
        Figure.of("a", "speed", Spread(1.5, 1.0, 2.0), TIMES, goal=1.2, table="first"),
        Figure.of("b", "speed", Spread(3.0, 3.0, 3.0), TIMES),
        Figure.of("c", "speed", Spread(0.0, 0.0, 0.0), TIMES, goal=0.0, at_most=True),
    ]
    result = results.measured("name", "Page", "claim", figures, {"a": [{"seconds": 1.0}]})
    path = results.write(result, tmp_path)
    assert results.read(path) == result
    assert path.read_text().count('"row"') == len(figures)
    assert list(results.read_all(tmp_path)) == ["name"]


@each_measure
def test_every_measure_has_a_default_and_a_help_for_each_option(measure: Measure) -> None:
    options = measure.options()
    for each in fields(options):
        assert each.metadata["help"]
    assert options.rounds >= 1


def test_names_of_measures_are_unique() -> None:
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)


def test_tables_keep_the_order_of_figures() -> None:
    figures = [
        Figure("b", "y", 1, 1, 1),
        Figure("a", "x", 1, 1, 1, "ms"),
        Figure("b", "x", 1, 1, 1, "ms"),
    ]
    ((title, (columns, rows)),) = records.tables(figures).items()
    assert (title, columns, list(rows)) == ("", ["y", "x, ms"], ["b", "a"])


def test_every_measure_that_a_page_runs_exists_with_the_options_that_it_names() -> None:
    """Flags are those of the options of that measure, and of the harness."""
    known = {measure.name: {each.name for each in fields(measure.options)} for measure in MEASURES}
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    asked = [
        (page.name, name, flags)
        for page in pages
        if page.name != "CHANGELOG.md"
        for name, flags in re.findall(
            r"python -m loadtests\.measure ([\w-]+)([^\n`)#]*)", page.read_text(encoding="utf-8")
        )
    ]
    assert asked
    for page, name, flags in asked:
        assert name in known, (page, name)
        for flag in re.findall(r"--([\w-]+)", flags):
            option = flag.replace("-", "_")
            assert option in known[name] | {"output", "help", "graph"}, (page, name, flag)
