"""The screen of the next token and of surprise, with the default model `gpt`."""

import math
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import expect

from tests.playground.browsers import Opened
from tests.playground.real_models import served

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "The import statement"
OPENED = f"#/next-token?text={quote(PROMPT)}&run=1"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("gpt") as running:
        yield f"http://{running.http_address}/"


async def likeliest(tab: Opened, **prompt: Any) -> list[dict[str, Any]]:
    params = {"temperature": 0, "max_tokens": 1, "logprobs": 50}
    body = {"model": "gpt", "sampling_params": params} | (prompt or {"text": PROMPT})
    answer = await tab.call("api/GenerateUnary", body)
    top = answer["results"][0]["logprobs"][0]["top"]
    assert isinstance(top, list)
    return top


async def cells(tab: Opened, column: int) -> list[str]:
    return await tab.page.locator(f".shape tbody td:nth-child({column})").all_text_contents()


async def test_the_likeliest_tokens_have_the_probabilities_of_the_api(tab: Opened) -> None:
    await tab.open(OPENED)
    await tab.until_done()
    top = await likeliest(tab)
    assert [int(cell) for cell in await cells(tab, 2)] == [token["id"] for token in top]
    shown = [float(cell.removesuffix(" %")) / 100 for cell in await cells(tab, 5)]
    assert shown == pytest.approx([math.exp(token["logprob"]) for token in top], abs=6e-4)
    assert len(shown) == 50
    await expect(tab.page.locator("section[aria-label=Result]")).to_contain_text(
        "all others together have"
    )


async def test_the_table_is_one_stop_of_tab_with_arrow_keys_inside(tab: Opened) -> None:
    """Each row has a token, and a button on each side of its bias."""
    page = await tab.open(OPENED)
    await tab.until_done()
    buttons = page.locator(".shape button")
    await expect(buttons).to_have_count(3 * 50)
    await expect(page.locator(".shape button[tabindex='0']")).to_have_count(1)
    await buttons.first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        await page.keyboard.press(key)
    await expect(buttons.nth(5)).to_be_focused()
    await page.keyboard.press("Enter")  # the row may move up by its bias
    focused = page.locator(".shape button:focus")
    await expect(focused).to_have_text("+")
    await expect(focused.locator("xpath=..")).to_contain_text("1")
    await expect(page.locator(".shape button[tabindex='0']")).to_have_count(1)


async def test_settings_reshape_the_bars_without_a_call(tab: Opened) -> None:
    page = await tab.open(OPENED)
    await tab.until_done()
    top = await likeliest(tab)
    calls: list[str] = []
    page.on("request", lambda request: calls.append(request.url))
    await page.get_by_label("Top-k").fill("3")
    await page.get_by_label("Temperature").fill("0.5")
    await expect(page.locator(".shape tr.last td").first).to_be_visible()
    weights = [math.exp(2 * token["logprob"]) for token in top[:3]]
    shown = (await cells(tab, 5))[:4]
    assert [float(cell.removesuffix(" %")) / 100 for cell in shown[:3]] == pytest.approx(
        [weight / sum(weights) for weight in weights], abs=6e-4
    )
    assert shown[3] == "\N{EN DASH}"
    await expect(page.locator("section[aria-label=Result]")).to_contain_text("Top-k keeps 3 of 50.")
    raised = page.locator(".shape tbody tr").nth(1).get_by_role("button", name="Raise")
    for _ in range(5):
        await raised.click()
    assert (await cells(tab, 2))[0] == str(top[1]["id"])
    assert [url for url in calls if "/api/Generate" in url] == []


async def test_settings_that_the_api_refuses_are_said_and_do_not_reshape_the_bars(
    tab: Opened,
) -> None:
    page = await tab.open(OPENED)
    await tab.until_done()
    before = await cells(tab, 5)
    for name, value, limits in (("Temperature", "-3", "0 to 100"), ("Min-p", "1.5", "0 to 1")):
        field = page.get_by_role("spinbutton", name=name)
        await field.fill(value)
        await expect(page.get_by_text(f"Expected {limits}.")).to_be_visible()
        assert await cells(tab, 5) == before
        await field.fill("1" if name == "Temperature" else "0")
        await expect(page.get_by_text(f"Expected {limits}.")).to_be_hidden()


async def test_a_token_that_is_chosen_is_appended_and_can_be_taken_back(tab: Opened) -> None:
    page = await tab.open(OPENED)
    await tab.until_done()
    chosen = (await likeliest(tab))[1]["id"]
    await page.locator(".shape tbody button.mono").nth(1).click()
    chips = page.get_by_role("group", name="Appended tokens")
    await expect(chips.locator(".chip")).to_have_count(1)
    tokens = await tab.call("api/Tokenize", {"model": "gpt", "texts": [PROMPT]})
    ids = [token["id"] for token in tokens["results"][0]["tokens"]]
    after = await likeliest(tab, token_ids={"ids": [*ids, chosen]})
    await expect(page.locator(".shape tbody td:nth-child(2)").first).to_have_text(
        str(after[0]["id"])
    )
    await tab.until_done()
    await expect(page).to_have_url(re.compile("tail="))
    await page.reload()
    await tab.until_done()
    assert [int(cell) for cell in await cells(tab, 2)] == [token["id"] for token in after]
    await page.get_by_role("button", name="Take back").click()
    await expect(chips.locator(".chip")).to_have_count(0)


async def test_the_surprise_of_a_text_is_that_of_its_prompt_logprobs(tab: Opened) -> None:
    text = "The import statement <b>\u202eimports.</b>"
    page = await tab.open(f"#/next-token?view=surprise&run=1&text={quote(text)}")
    await tab.until_done()
    params = {"max_tokens": 0, "prompt_logprobs": 1}
    body = {"model": "gpt", "text": text, "sampling_params": params}
    scores = (await tab.call("api/GenerateUnary", body))["prompt_logprobs"]
    bits = [-score["logprob"] / math.log(2) for score in scores[1:]]
    facts = await page.locator(".facts dd").all_text_contents()
    assert facts[0] == str(len(scores))
    assert facts[1] == f"{sum(bits):.1f}"
    assert facts[4] == f"{2 ** (sum(bits) / len(bits)):.1f}"
    row = page.get_by_role("group", name="Tokens by surprise")
    await expect(row).to_contain_text("[RLO]")
    assert await row.locator("b").count() == 0
    worst = await page.locator("td:nth-child(3)").all_text_contents()
    assert worst[0] == f"{max(bits):.1f}"
