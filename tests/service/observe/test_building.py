"""What is built beside the server, as the file of its builder says it."""

import os
from pathlib import Path

import pytest

from service.observe.building import FILE, MOST_BYTES, STALE_S, builds_in, file_of

NOW_S = 1_000_000.0
PLANNED = [("gpt", ["gpt"], 200.0), ("dates", ["dates", "dates-attention"], 100.0)]


def write(folder: Path, text: str, age_s: float = 0.0) -> None:
    (folder / FILE).write_text(text)
    os.utime(folder / FILE, (NOW_S - age_s, NOW_S - age_s))


def test_the_running_build_is_first_and_the_next_waits_for_it(tmp_path: Path) -> None:
    """82 of 200 seconds are 41 %."""
    write(tmp_path, file_of(NOW_S - 82, PLANNED))
    gpt, dates = builds_in(tmp_path, NOW_S)
    assert gpt == {"name": "gpt", "models": ["gpt"], "share": 0.41, "left_seconds": 118.0}
    assert (dates["name"], dates["share"], dates["left_seconds"]) == ("dates", 0.0, 218.0)


def test_a_build_that_takes_longer_than_expected_is_never_said_to_be_done(tmp_path: Path) -> None:
    write(tmp_path, file_of(NOW_S - 500, PLANNED))
    gpt, dates = builds_in(tmp_path, NOW_S)
    assert gpt["share"] == 0.99
    assert gpt["left_seconds"] == pytest.approx(2.0)
    assert dates["left_seconds"] == pytest.approx(102.0)


def test_a_builder_that_has_ended_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, file_of(NOW_S, PLANNED), STALE_S + 1)
    assert builds_in(tmp_path, NOW_S) == []
    assert builds_in(tmp_path / "nowhere", NOW_S) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"began": 1}', '{"began": "x", "planned": []}', " " * MOST_BYTES]
)
def test_a_file_of_another_form_says_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path, text + "\n")
    assert builds_in(tmp_path, NOW_S) == []
