"""Goals of our fastest way, ways that fail, and rounds that end with their time."""

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from loadtests.compare.devices.goals import Goal, with_goals
from loadtests.gpu.context import Context, Run
from loadtests.gpu.measuring import measure_within
from loadtests.measure.records import Column, Measure, Options, Turn, Way, by_columns

SPEED = Column("rows/s", "rows/seconds")


def turn(seconds: float) -> Turn:
    return {"seconds": seconds, "rows": 6.0}


def fails() -> Turn:
    raise RuntimeError("no kernel")


def measured(tmp_path: Path, ways: dict[str, Way], time_s: float = 60.0) -> Context:
    measure = Measure("m", "claim", "page", Options, lambda *_: ways, by_columns(SPEED))
    context = Context(Run(tmp_path, "cpu", is_tiny=True), "6 speed", time.monotonic() + time_s)
    measure_within(context, measure, Options(rounds=50), time_s, "m")
    return context


def test_our_fastest_way_of_each_case_has_the_goals() -> None:
    rounds = {
        "a: ours, one": [turn(3.0), turn(1.0), turn(1.0)],
        "a: ours, two": [turn(2.0)] * 3,
        "a: theirs": [turn(0.1)] * 3,
        "b: ours, two": [turn(2.0)] * 3,
    }
    figures = with_goals(by_columns(SPEED)(rounds), [Goal("rows/s", 5.0)], "rows/s")
    assert {figure.row: figure.is_met for figure in figures if figure.goal is not None} == {
        "a: ours, one": True,
        "b: ours, two": False,
    }
    figures = with_goals(by_columns(SPEED)(rounds), [Goal("rows/s", 5.0, "b")], "rows/s")
    assert [figure.row for figure in figures if figure.goal is not None] == ["b: ours, two"]


def test_a_way_of_ours_that_fails_is_a_failed_check_and_one_of_others_is_left_out(
    tmp_path: Path,
) -> None:
    ways: dict[str, Way] = {"ours, a": fails, "ours, b": lambda: turn(1.0), "torch": fails}
    context = measured(tmp_path, ways)
    (claim,) = context.findings["claims"]
    assert (claim["claim"], claim["holds"]) == ("m, ours, a, is timed", False)
    assert claim["found"] == "RuntimeError: no kernel"
    assert context.findings["left_out"] == ["m, torch: RuntimeError: no kernel"]
    assert [row["way"] for row in context.findings["tables"]["m"]] == ["ours, b"]


def test_a_case_has_at_least_three_rounds_and_ends_with_its_time(tmp_path: Path) -> None:
    """A turn takes 50 ms: 0.4 s for two cases are not 50 rounds of each."""
    calls: list[str] = []

    def slow(name: str) -> Turn:
        calls.append(name)
        time.sleep(0.05)
        return turn(0.05)

    measured(tmp_path, {name: partial(slow, name) for name in ("a: x", "b: x")}, 0.4)
    for name in ("a: x", "b: x"):
        assert 5 <= calls.count(name) < 30, "first turns, warm-up, and three or more"


def test_a_measure_closes_what_it_opened(tmp_path: Path) -> None:
    closed: list[str] = []

    def ways(_: Options, stack: ExitStack) -> dict[str, Way]:
        stack.callback(closed.append, "engine")
        return {"ours": fails}

    measure = Measure("m", "claim", "page", Options, ways, by_columns(SPEED))
    context = Context(Run(tmp_path, "cpu", is_tiny=True), "6 speed", 0.0)
    measure_within(context, measure, Options(), 10.0, "m")
    assert closed == ["engine"]
