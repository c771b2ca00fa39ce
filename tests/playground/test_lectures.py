"""Every row of docs/lectures.md leads somewhere, and the page shows its value there."""

import re
from collections import defaultdict
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from playwright.async_api import expect

from tests.playground.browsers import Opened
from tests.playground.shown import rows
from tests.playground.test_files import SCREENS

PAGE = Path(__file__).parents[2] / "docs/lectures.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| lecture")
]
LINK = re.compile(r"`#/([a-z-]+)(?:\?([^`]+))?`")
PRESETS = (PAGE.parents[1] / "playground/screens/inside_presets.js").read_text(encoding="utf-8")


def test_every_row_has_a_target_that_the_page_knows() -> None:
    ids = {path.stem.replace("_", "-") for path in SCREENS}
    known = {*re.findall(r"^\t(\w+): (?:\{|quiz\()", PRESETS, re.MULTILINE), "model"}
    assert len(ROWS) > 40
    for lecture, document, item, target, value in ROWS:
        link = LINK.fullmatch(target)
        assert link is not None, f"{item}: {target}"
        assert link[1] in ids, item
        for preset in parse_qs(link[2] or "").get("preset", []):
            assert preset in known, item
        path = re.search(r"\(([^)#]+)", document)
        assert path is not None, item
        assert (PAGE.parent / path[1]).is_file(), item
        assert lecture, item
        assert re.fullmatch(r"[\d.]*", value), item


@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_shows_the_lectures_value_where_the_row_says(tab: Opened) -> None:
    """Of the lecture's numbers the page has one table, with its own value in the last column."""
    by_target = defaultdict(list)
    for _, _, item, target, value in ROWS:
        if value:
            by_target[target.strip("`")].append((item, value))
    assert len(by_target) >= 6
    for target, expected in by_target.items():
        page = await tab.open(target)
        is_inside = target.startswith("#/inside")
        table = page.get_by_role("table", name="numbers" if is_inside else "two positions")
        await expect(table).to_be_visible()
        shown = [[cell.strip() for cell in row] for row in await rows(table)]
        for item, value in expected:
            matching = [row for row in shown if value in row[1:]]
            assert matching, f"{target}: {item} is not {value} in {shown}"
            if is_inside:
                assert any(row[1] == row[2] == value for row in matching), item


@pytest.mark.asyncio(loop_scope="module")
async def test_every_number_of_a_lecture_on_the_page_is_the_one_that_the_page_computes(
    tab: Opened,
) -> None:
    for preset in re.findall(r"^\t(\w+): \{", PRESETS, re.MULTILINE):
        page = await tab.open(f"#/inside?preset={preset}")
        await expect(page.get_by_role("tab", name="Scores")).to_be_visible()
        table = page.get_by_role("table", name="The lecture's numbers")
        for item, lecture, here in await rows(table) if await table.count() else []:
            assert lecture == here, item
