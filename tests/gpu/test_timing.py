"""Times taken in turns, and their medians, quartiles and ratios."""

from pathlib import Path

import pytest

from loadtests.gpu.context import Context, Run
from loadtests.gpu.report import short
from loadtests.gpu.timing import Quartiles, failing_alone, fastest, interleaved, ratios
from service.errors import LoadError


def test_figures_are_the_median_and_the_quartiles() -> None:
    assert Quartiles.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Quartiles(3.0, 2.0, 4.0, 5)
    assert Quartiles.of([7.0]) == Quartiles(7.0, 7.0, 7.0, 1)


def test_work_per_second_turns_the_quartiles_around() -> None:
    assert Quartiles(2.0, 1.0, 4.0, 9).per_second(8) == Quartiles(4.0, 2.0, 8.0, 9)


def test_a_ratio_is_of_the_times_of_one_round() -> None:
    """Ours twice as fast in each round, though the rounds differ: the ratio has no spread."""
    assert ratios([1.0, 10.0, 3.0], [2.0, 20.0, 6.0]) == Quartiles(2.0, 2.0, 2.0, 3)


def test_ways_take_turns_in_both_orders_until_there_are_enough_rounds() -> None:
    calls: list[str] = []
    ways = {name: (lambda name=name: calls.append(name)) for name in "ab"}
    seconds = interleaved(ways, 0.0, max_rounds=9, warm_up=1)
    assert "".join(calls) == "ab" + "ba" + "ab" + "ba"
    assert {name: len(values) for name, values in seconds.items()} == {"a": 3, "b": 3}


def test_rounds_end_at_the_most_where_there_is_time() -> None:
    seconds = interleaved({"a": lambda: None}, 60.0, max_rounds=4, warm_up=0)
    assert len(seconds["a"]) == 4


def test_the_fastest_of_our_ways_has_the_shortest_median() -> None:
    seconds = {"ours, a": [3.0, 1.0, 1.0], "ours, b": [2.0, 2.0, 2.0], "torch": [0.1, 0.1, 0.1]}
    assert fastest(seconds) == "ours, a"
    assert fastest({"torch": [1.0]}) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234.6, "1,235"), (12.34, "12.3"), (0.01234, "0.0123"), (0.999999, "1.000")],
)
def test_numbers_are_shown_in_significant_digits(value: float, text: str) -> None:
    assert short(value) == text


def test_a_way_that_cannot_be_opened_fails_alone(tmp_path: Path) -> None:
    context = Context(Run(tmp_path, "cpu", is_tiny=True), "6 speed", 0.0)
    with failing_alone(context, "paged is opened"):
        raise LoadError("no kernel")
    (claim,) = context.findings["claims"]
    assert (claim["holds"], claim["found"]) == (False, "no kernel")
