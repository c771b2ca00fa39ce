"""Attention by hand, and positions: what the page computes, number for number."""

import math

import pytest
from playwright.async_api import Page, expect

from tests.playground.browsers import Opened
from tests.playground.shown import rows

TIMES = "\N{MULTIPLICATION SIGN}"
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def step(page: Page, name: str, caption: str) -> list[list[str]]:
    await page.get_by_role("tab", name=name).click()
    return await rows(page.get_by_role("table", name=caption, exact=True).locator("visible=true"))


async def test_numbers_can_be_changed_and_are_followed_to_the_end(tab: Opened) -> None:
    """A longer orange takes more of apple by dot products: 2 x 4 instead of 2 x 3."""
    page = await tab.open("#/inside?preset=apple")
    await page.get_by_role("radio", name="Dot product").click()
    await page.get_by_label("Words as vectors, row 2, column 2").fill("4")
    assert await step(page, "Scores", "Scores") == [["apple", "8", "8"], ["orange", "8", "16"]]
    await expect(page.get_by_text(f"apple · orange = 2{TIMES}0 + 2{TIMES}4 = 8")).to_be_visible()
    await page.get_by_label("Divided by").fill("2")
    scaled = await step(page, "Scaling", "Scaled scores")
    assert scaled == [["apple", "4", "4"], ["orange", "4", "8"]]
    share = 1 / (1 + math.exp(4))
    weights = await step(page, "Softmax", "Weights")
    assert weights == [["apple", "0.5", "0.5"], ["orange", f"{share:.2f}", f"{1 - share:.2f}"]]
    assert (await step(page, "Weighted sum", "Sums"))[0] == ["apple", "(2, 2)", "(1, 3)"]
    await page.get_by_label("W^V, row 1, column 1").fill("3")
    assert (await step(page, "Weighted sum", "Sums"))[0] == ["apple", "(2, 2)", "(3, 3)"]
    assert (await step(page, "Softmax", "Weights")) == weights


async def test_a_link_has_the_numbers_that_were_typed(tab: Opened) -> None:
    page = await tab.open("#/inside?preset=products")
    await page.get_by_label("W^Q, row 1, column 1").fill("4")
    await page.get_by_label("Word 1").fill("Dreaming")
    await page.wait_for_url("**Dreaming**")
    await page.reload()
    assert (await step(page, "Scores", "Scores"))[0] == ["Dreaming", "80", "68"]


async def test_a_link_of_other_numbers_shows_the_example(tab: Opened) -> None:
    page = await tab.open('#/inside?preset=apple&data={"words":[1]}')
    assert (await step(page, "Softmax", "Weights"))[0] == ["apple", "0.57", "0.43"]


async def test_two_heads_are_joined_by_their_output_matrix(tab: Opened) -> None:
    page = await tab.open("#/inside?preset=heads")
    joined = await step(page, "Heads and W", "Heads joined")
    for _, beside, out in joined:
        first, second, third, fourth = (float(each) for each in beside.strip("()").split(", "))
        expected = [(first + third) / 2, (second + fourth) / 2]
        assert [float(each) for each in out.strip("()").split(", ")] == pytest.approx(
            expected, abs=0.011
        )
    await page.get_by_role("button", name="Remove a head").click()
    alone = await step(page, "Heads and W", "Heads joined")
    assert all(beside == out for _, beside, out in alone)


async def test_a_head_of_a_served_model_is_read_and_its_weights_are_the_servers(
    tab: Opened,
) -> None:
    page = await tab.open("#/inside?preset=model&text=win+a+prize&layer=1")
    await page.get_by_role("button", name="Read this head").click()
    shown = await step(page, "Softmax", "Weights")
    model = await page.get_by_label("Model", exact=True).input_value()
    answer = await tab.call(
        "api/Attend", {"model": model, "text": "win a prize", "layers": [1], "heads": [0]}
    )
    values, size = answer["matrices"][0]["weights"], len(answer["keys"])
    for at, (_, *row) in enumerate(shown):
        expected = values[at * size : (at + 1) * size]
        assert [float(each) for each in row] == pytest.approx(expected, abs=0.0051)
    await page.get_by_label("Text", exact=True).fill("win " * 18)
    await page.get_by_role("button", name="Read this head").click()
    await expect(page.get_by_role("alert").filter(has_text="shorten")).to_be_visible()
    tab.complaints.clear()  # the fake model takes fewer tokens than that


async def test_positions_are_those_of_the_formula(tab: Opened) -> None:
    page = await tab.open("#/positions?size=4&at=1&to=2")
    values = await rows(page.get_by_role("table", name="Values of two positions"))
    formula = [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]
    assert [float(row[1]) for row in values] == [float(f"{each:.2f}") for each in formula]
    await page.get_by_role("radio", name="Rotary").click()
    product = page.get_by_text("Their product is")
    before = await product.inner_text()
    await page.get_by_label("Position", exact=True).fill("11")
    await page.get_by_label("Other position").fill("12")
    assert await product.inner_text() == before
    await page.get_by_role("radio", name="Learned").click()
    await page.get_by_label("Steps of learning").fill("0")
    await expect(page.get_by_role("img", name="Products of positions")).to_be_visible()
