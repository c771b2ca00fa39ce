"""The screen that generates text, with the default model `gpt`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.fakes.every_task import every_task
from tests.fakes.serving import eventually, metrics_page
from tests.playground.browsers import Opened, opened
from tests.playground.real_models import served

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = "The import statement"
GREEDY = f"#/generate?text={quote(PROMPT)}&temperature=0&max_tokens=12"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("gpt") as running:
        yield f"http://{running.http_address}/"


async def generated(tab: Opened, **changes: Any) -> dict[str, Any]:
    """The API's only result, greedy with the likeliest tokens."""
    params = {"temperature": 0, "max_tokens": 12, "logprobs": 10}
    body = {"model": "gpt", "text": PROMPT, "sampling_params": params} | changes
    answer = await tab.call("api/GenerateUnary", body)
    (result,) = answer["results"]
    assert isinstance(result, dict)
    return result


def output(page: Page) -> Locator:
    return page.locator(".document .token")


async def words(tokens: Locator) -> str:
    """Their text; a hair space is there to be seen of a token that ends within a character."""
    return "".join(await tokens.all_text_contents()).replace("↵", "").replace("\u200a", "")


async def finished(tab: Opened) -> None:
    """The status changes while text comes, so it does not tell of the end."""
    await expect(tab.page.locator("section[aria-busy]")).to_have_attribute("aria-busy", "false")


async def run(tab: Opened) -> None:
    await tab.page.locator("button.primary").click()
    await finished(tab)


def percent(logprob: float) -> re.Pattern[str]:
    value = 2.718281828459045**logprob
    digits = 0 if value >= 0.9995 else 1 if value >= 0.1 else 2
    return re.compile(re.escape("<0.01 %" if value < 0.0001 else f"{100 * value:.{digits}f} %"))


async def test_text_goes_on_in_its_place_with_the_probabilities_of_the_api(tab: Opened) -> None:
    page = await tab.open(GREEDY)
    await run(tab)
    result = await generated(tab)
    await expect(page.get_by_role("textbox", name="Prompt")).to_have_text(PROMPT)
    assert await words(output(page)) == result["text"]
    for index, token in enumerate(result["logprobs"]):
        title = await output(page).nth(index).get_attribute("title")
        assert title is not None
        assert percent(token["logprob"]).match(title)
        assert title.endswith("rank 1")
    status = page.locator(".run .status")
    await expect(status).to_have_text(re.compile(r"12 tokens, \d+ tokens/s, first token .* reused"))


async def test_a_keyboard_alone_cuts_the_text_at_a_token_and_goes_on_from_another(
    tab: Opened,
) -> None:
    page = await tab.open(GREEDY)
    await page.get_by_role("textbox", name="Prompt").focus()
    await page.keyboard.press("Control+Enter")
    await finished(tab)
    before = await generated(tab)
    await page.keyboard.press("Tab")
    for _ in range(3):
        await page.keyboard.press("ArrowRight")
    await expect(output(page).nth(3)).to_be_focused()
    await expect(page.get_by_role("region", name="Token", exact=True)).to_contain_text(
        "It was the likeliest"
    )
    await page.keyboard.press("Enter")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await finished(tab)
    await expect(output(page).nth(3)).to_be_focused()
    second = before["logprobs"][3]["top"][2]["id"]
    tokens = await tab.call("api/Tokenize", {"model": "gpt", "texts": [PROMPT]})
    prompt = [token["id"] for token in tokens["results"][0]["tokens"]]
    ids = [*prompt, *before["token_ids"][:3], second]
    after = await tab.call(
        "api/GenerateUnary",
        {
            "model": "gpt",
            "token_ids": {"ids": ids},
            "sampling_params": {"temperature": 0, "max_tokens": 12},
        },
    )
    whole = await tab.call(
        "api/Detokenize",
        {"model": "gpt", "token_ids": ids[len(prompt) :] + after["results"][0]["token_ids"]},
    )
    assert await words(output(page)) == whole["text"]
    branches = page.get_by_role("navigation", name="Branches").get_by_role("listitem")
    await expect(branches.nth(2)).to_contain_text("Token 4:")
    await page.get_by_role("button", name="Undo").click()
    assert await words(output(page)) == before["text"]
    await page.get_by_role("button", name="Redo").click()
    assert await words(output(page)) == whole["text"]


async def test_stop_ends_the_sequence_on_the_server(browser: Browser, tmp_path: Path) -> None:
    """A fake model, whose sixth step is held until the server knows that the page has left."""
    async with every_task(tmp_path, http_port=0) as faked:
        url = f"http://127.0.0.1:{faked.app.http_port}/"
        async with opened(browser, url) as tab:
            page = await tab.open("#/generate?model=tale&text=once&max_tokens=40")
            faked.decoders["tale"].hold(after=5)
            await page.get_by_role("button", name="Generate", exact=True).click()
            await output(page).nth(4).wait_for()
            await page.keyboard.press("Escape")
            await expect(page.locator(".run .status")).to_have_text("Stopped")
            await eventually(lambda: not faked.has_clients("tale"))
            faked.decoders["tale"].release()
            await eventually(lambda: not faked.num_running("tale"))
            ended = 'request_success_total{finished_reason="abort",model="tale",version="1"} 1.0'
            assert ended in await metrics_page(faked.app)
            await expect(output(page)).to_have_count(5)


async def test_samples_stand_side_by_side_and_one_of_them_can_be_kept(tab: Opened) -> None:
    page = await tab.open(f"#/generate?text={quote(PROMPT)}&max_tokens=6&n=3&top_k=40")
    await run(tab)
    lanes = page.locator(".lanes > section")
    await expect(lanes).to_have_count(3)
    second = await words(lanes.nth(1).locator(".token:not(.cut)"))
    await lanes.nth(1).get_by_role("button", name="Keep this").click()
    await expect(lanes).to_have_count(0)
    assert await words(page.locator(".document .token:not(.cut)")) == second
    await page.get_by_role("button", name="Continue", exact=True).click()
    await expect(lanes).to_have_count(3)
    assert await words(output(page)) == second


async def test_two_settings_are_compared_and_what_differs_is_marked(tab: Opened) -> None:
    path = "&compare=true&other_temperature=1&seed=5&keep_seed=true&run=1"
    page = await tab.open(GREEDY + path)
    await finished(tab)
    lanes = page.locator(".lanes > section")
    await expect(lanes).to_have_count(2)
    await expect(lanes.get_by_role("heading")).to_have_text(["Temperature 0", "Temperature 1"])
    sampled = await generated(tab, sampling_params={"temperature": 1, "max_tokens": 12, "seed": 5})
    assert await words(lanes.nth(0).locator(".token")) == (await generated(tab))["text"]
    assert await words(lanes.nth(1).locator(".token")) == sampled["text"]
    assert await lanes.nth(1).locator(".differs").count() > 0
    assert await lanes.nth(0).locator(".differs").count() == 0


async def test_a_permalink_gives_the_same_text(tab: Opened) -> None:
    page = await tab.open(f"#/generate?text={quote(PROMPT)}&max_tokens=16")
    await run(tab)
    text = await words(output(page))
    assert text
    await expect(page).to_have_url(re.compile("seed="))
    await page.reload()
    await finished(tab)
    assert await words(output(page)) == text


async def test_line_breaks_and_markup_of_a_prompt_are_text(tab: Opened) -> None:
    page = await tab.open(GREEDY)
    prompt = page.get_by_role("textbox", name="Prompt")
    await prompt.click()
    await page.keyboard.press("Control+a")
    await page.keyboard.type("<img src=x>\n<b>a</b>\n")
    await page.keyboard.press("Control+Enter")
    await finished(tab)
    assert await page.locator(".document img, .document b").count() == 0
    expected = await generated(tab, text="<img src=x>\n<b>a</b>\n")
    assert await words(output(page)) == expected["text"]


async def test_an_edited_prompt_begins_anew_and_an_error_is_at_its_control(tab: Opened) -> None:
    page = await tab.open(GREEDY)
    await run(tab)
    button = page.locator("button.primary")
    await expect(button).to_have_text("Continue")
    await page.get_by_role("textbox", name="Prompt").press_sequentially("A ")
    await expect(button).to_have_text("Generate")
    await page.get_by_label("Stop texts").fill("x" * 300)
    await button.click()
    error = page.locator(".field.wrong .error")
    await expect(error).to_contain_text("stop has a string of 300 characters")
    await expect(page.get_by_label("Stop texts")).to_have_attribute("aria-invalid", "true")
    tab.complaints.clear()


async def test_a_model_that_is_unloaded_in_the_middle_finishes_what_it_began(tab: Opened) -> None:
    page = await tab.open(f"#/generate?text={quote(PROMPT)}&max_tokens=200&temperature=1")
    await page.get_by_role("button", name="Generate", exact=True).click()
    await output(page).nth(2).wait_for()
    post = "(path) => fetch(path, {method: 'POST', body: '{}'}).then((answer) => answer.status)"
    assert await page.evaluate(post, "v2/repository/models/gpt/unload") == 200
    await finished(tab)
    whole = await output(page).count()
    await page.get_by_role("button", name="Continue", exact=True).click()
    alerts = page.get_by_role("alert").filter(has_text=re.compile("gpt|not served"))
    await expect(alerts.first).to_be_visible()
    assert await output(page).count() == whole
    assert await page.evaluate(post, "v2/repository/models/gpt/load") == 200
    tab.complaints.clear()
