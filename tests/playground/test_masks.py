"""The screen of masks, with a small model that is saved."""

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import expect

from tests.playground.browsers import Opened
from tests.playground.real_models import saved
from tests.playground.shown import link, percent, rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

MASKS = "encoder-masked-words"  # whose mask is spelled "free"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with saved(MASKS) as process:
        yield f"http://{process.http_address}/"


async def fills(tab: Opened, text: str, **choice: Any) -> list[dict[str, Any]]:
    body = {"model": MASKS, "texts": [text], **choice}
    (result,) = (await tab.call("api/FillMask", body))["results"]
    found: list[dict[str, Any]] = result["masks"][0]["fills"]
    return found


async def test_two_prompts_have_the_log_probabilities_of_the_api(tab: Opened) -> None:
    """The lecture's prompts are the first example; both are asked about the words of either."""
    page = await tab.open(f"#/fill-mask?model={MASKS}&top_k=4")
    texts = [await page.get_by_label(name).input_value() for name in ("First", "Second prompt")]
    assert texts == [f"In {place}, they like to buy free." for place in ("Texas", "New York")]
    await tab.run()
    likeliest = [await fills(tab, text, top_k=4) for text in texts]
    words = {fill["token"] for each in likeliest for fill in each} - {""}  # ids without a spelling
    first, second = [
        {each["token"]: each["logprob"] for each in await fills(tab, text, candidates=[*words])}
        for text in texts
    ]
    shown = await rows(page.locator("table.paired"))
    assert [row[1] for row in shown] == sorted(words, key=lambda word: -first[word])
    for left, word, right, ratio in shown:
        assert (left, right) == (percent(math.exp(first[word])), percent(math.exp(second[word])))
        assert float(ratio.replace("\N{MINUS SIGN}", "-")) == pytest.approx(
            first[word] - second[word], abs=0.006
        )
    picture = page.get_by_role("img", name="Log probability of each word under both prompts")
    assert await picture.bounding_box()
    await picture.focus()
    await page.keyboard.press("ArrowRight")
    least = min(words, key=lambda word: first[word])
    await expect(page.get_by_role("tooltip")).to_contain_text(least)
    await page.get_by_role("radio", name="Difference").click()
    ordered = [row[1] for row in await rows(page.locator("table.paired"))]
    assert ordered[0] == max(words, key=lambda word: abs(first[word] - second[word]))


async def test_a_word_is_put_into_the_prompts_and_taken_out_again(tab: Opened) -> None:
    page = await tab.open(link("fill-mask", MASKS, first="win free", second="the free now"))
    await tab.run()
    word = page.locator("table.paired tbody button").first
    token = await word.inner_text()
    await word.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("First prompt")).to_have_value(f"win {token}")
    await expect(page.get_by_label("Second prompt")).to_have_value(f"the {token} now")
    await page.get_by_role("button", name="Take the word out").click()
    await expect(page.get_by_label("First prompt")).to_have_value("win free")
    await expect(page.locator("table.paired")).to_be_visible()


async def test_each_of_several_masks_is_shown_and_the_link_keeps_which(tab: Opened) -> None:
    text = "free the free"
    page = await tab.open(link("fill-mask", MASKS, first=text, candidates="cash, lunch, home"))
    await tab.run()
    await page.get_by_label("Mask", exact=True).select_option("2")
    body = {"model": MASKS, "texts": [text], "candidates": ["cash", "lunch", "home"]}
    (result,) = (await tab.call("api/FillMask", body))["results"]
    scores = [percent(fill["score"]) for fill in result["masks"][1]["fills"]]
    values = page.get_by_role("list", name="Fills").locator(".value")
    await expect(values).to_have_text(scores)
    await page.wait_for_url(re.compile("mask=1"))
    await tab.open(page.url.removeprefix(tab.url))
    await expect(values).to_have_text(scores)


async def test_prompts_are_swapped(tab: Opened) -> None:
    page = await tab.open(link("fill-mask", MASKS, first="win free", second="the free"))
    await tab.run()
    table = page.locator("table.paired")
    before = {row[1]: (row[0], row[2]) for row in await rows(table)}
    await page.get_by_role("button", name="Swap prompts").click()
    await expect(page.get_by_label("First prompt")).to_have_value("the free")
    await tab.until_done()
    after = {row[1]: (row[2], row[0]) for row in await rows(table)}
    assert after == before


async def test_an_error_is_shown_at_the_prompt_that_it_is_about(tab: Opened) -> None:
    page = await tab.open(link("fill-mask", MASKS, first="win free", second="the prize"))
    await page.get_by_label("First prompt").press("Control+Enter")
    field = page.locator(".field.wrong")
    await expect(field).to_contain_text("text 1 has 0 free, expected 1 to 16")
    await expect(field.get_by_label("Second prompt")).to_be_focused()
    tab.complaints.clear()  # the browser's line about the status 400


async def test_words_that_are_no_token_are_named_and_the_others_compared(tab: Opened) -> None:
    given = link("fill-mask", MASKS, first="win free", candidates="cash, oil, cash now, lunch")
    page = await tab.open(given)
    await tab.run()
    await expect(page.locator("section .notice")).to_have_text(
        [
            "“oil” is not in the vocabulary.",
            "“cash now” is 2 pieces (cash now), and a mask takes one.",
        ]
    )
    expected = await fills(tab, "win free", candidates=["cash", "lunch"])
    labels = page.get_by_role("list", name="Fills").locator(".label")
    assert await labels.all_inner_texts() == [each["token"] for each in expected]


async def test_templates_and_words_make_a_table(tab: Opened) -> None:
    values = {"templates": "the {} free\nfree {}", "words": "lunch, cash", "targets": "home, now"}
    page = await tab.open(link("fill-mask", MASKS, mode="many", **values))
    await tab.run()
    texts = ["the lunch free", "the cash free", "free lunch", "free cash"]
    shown = await rows(page.get_by_role("table"))
    assert [row[0] for row in shown] == texts
    for text, row in zip(texts, shown, strict=True):
        expected = {
            each["token"]: each["score"]
            for each in await fills(tab, text, candidates=["home", "now"])
        }
        assert row[2:] == [percent(expected["home"]), percent(expected["now"])]
    url = page.url
    assert "run=1" in url
    await tab.open(url.removeprefix(tab.url))
    await expect(page.get_by_role("table")).to_be_visible()
    assert await rows(page.get_by_role("table")) == shown, "the link gives the same"


async def test_templates_of_bias_are_an_example_that_is_called_so(tab: Opened) -> None:
    page = await tab.open(link("fill-mask", MASKS, mode="many", templates="free {}", words="win"))
    await expect(page.get_by_text("The first ones are an example of bias.")).to_be_visible()
    await page.get_by_label("Examples").select_option(label="Bias: jobs in templates")
    await tab.until_done()
    words = [row[1] for row in await rows(page.get_by_role("table"))]
    assert words == 2 * ["doctor", "nurse", "teacher"]


async def test_templates_without_a_text_or_a_word_say_what_is_missing(tab: Opened) -> None:
    page = await tab.open(link("fill-mask", MASKS, mode="many", targets="", words=" , "))
    run = page.get_by_role("button", name="Run", exact=True)
    await run.click()
    await expect(page.get_by_text("Give words for the place of {}.")).to_be_visible()
    await page.get_by_label("Templates, one a line").fill(" ")
    await run.click()
    await expect(page.get_by_text("Give a template.")).to_be_visible()
