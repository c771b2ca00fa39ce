"""What all screens have in common, in a real browser."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.fakes.every_task import every_task
from tests.fakes.serving import Served, eventually
from tests.playground.browsers import Opened, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")
TOKEN = "a-token-of-the-tests"
CLASSIFY = "#/classify?model=spam&text=win+a+prize"
MARKUP = "<img src=x> \u202ewin"


async def cancelled(tab: Opened) -> int:
    live: Any = await tab.page.evaluate("fetch('api/live').then((answer) => answer.json())")
    return int(live["requests"]["cancelled"])


async def test_the_page_opens_with_every_screen_in_its_navigation(tab: Opened) -> None:
    page = await tab.open("#/models")
    links = page.get_by_role("navigation", name="Screens").get_by_role("link")
    await expect(links).to_have_count(19)
    await expect(page.get_by_role("heading", level=1, name="Models")).to_be_visible()
    await page.get_by_role("link", name="Classify").click()
    await expect(page.get_by_role("heading", level=1, name="Classify")).to_be_visible()
    assert await page.get_by_role("link", name="Classify").get_attribute("aria-current") == "page"
    await page.go_back()
    await expect(page.get_by_role("heading", level=1, name="Models")).to_be_visible()


async def test_a_permalink_gives_the_same_after_a_reload(tab: Opened) -> None:
    page = await tab.open(CLASSIFY)
    await expect(page.get_by_label("Text", exact=True)).to_have_value("win a prize")
    await page.keyboard.press("Control+Enter")
    await tab.until_done()
    shown = await page.locator("section[aria-label=Result]").inner_text()
    assert "run=1" in page.url
    await page.reload()
    await tab.until_done()
    assert await page.get_by_label("Text", exact=True).input_value() == "win a prize"
    assert await page.locator("section[aria-label=Result]").inner_text() == shown


async def test_the_request_is_there_for_other_programs(tab: Opened) -> None:
    page = await tab.open(CLASSIFY)
    await tab.run()
    await page.get_by_text("Request", exact=True).first.click()
    code = page.locator(".request pre:visible")
    await expect(code).to_contain_text("curl")
    for name, words in (
        ("Python", "requests.post("),
        ("JavaScript", "await fetch("),
        ("gRPC", "attendant.v1.TextService/Classify"),
        ("Request", '"texts": ['),
        ("Answer", '"results": ['),
    ):
        await page.get_by_role("tab", name=name, exact=True).click()
        await expect(code).to_contain_text(words)
    await page.set_viewport_size({"width": 360, "height": 800})
    assert not await page.evaluate("document.scrollingElement.scrollWidth > innerWidth")


async def test_markup_and_marks_of_direction_stay_text(tab: Opened) -> None:
    page = await tab.open("#/classify?model=spam&text=" + "win")
    await page.get_by_label("Text", exact=True).fill(MARKUP)
    await tab.run()
    result = page.locator("section[aria-label=Result]")
    assert await result.locator("img").count() == 0
    assert "\u202e" not in await result.inner_text()


async def test_an_error_is_shown_at_its_control(tab: Opened) -> None:
    page = await tab.open("#/classify?model=spam")
    text = page.get_by_label("Text", exact=True)
    await text.fill("x" * 1_500)
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("alert").filter(has_text="1500")).to_be_visible()
    await text.fill("win " * 30)
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("alert").filter(has_text=": shorten it")).to_be_visible()
    await expect(page.get_by_text("ask for truncation")).to_have_count(0)
    tab.complaints.clear()  # the server's 400
    await text.fill("win")
    await tab.run()
    await expect(page.get_by_role("alert").filter(has_text="1500")).to_have_count(0)


async def test_a_result_that_is_not_of_the_text_is_framed_until_the_next_one(tab: Opened) -> None:
    page = await tab.open(CLASSIFY)
    await tab.run()
    result = page.locator("section[aria-label=Result]")
    await expect(result).not_to_have_class(re.compile("stale"))
    await page.get_by_label("Text", exact=True).fill("win " * 500)
    await page.keyboard.press("Control+Enter")
    await expect(result).to_have_class(re.compile("stale"))
    tab.complaints.clear()  # the server's 400
    await page.get_by_label("Text", exact=True).fill("win")
    await tab.run()
    await expect(result).not_to_have_class(re.compile("stale"))


async def test_a_link_says_what_it_leaves_out_and_which_model_stands_in(tab: Opened) -> None:
    page = await tab.open("#/classify?model=no-such-model&text=win")
    await expect(page.get_by_role("alert")).to_contain_text("no-such-model of the address")
    await page.get_by_label("Text", exact=True).fill("win " * 2000)
    await page.context.grant_permissions(["clipboard-write"])
    await page.get_by_role("button", name="Copy link").click()
    await expect(page.get_by_text("too long for an address")).to_be_visible()
    assert "win" not in page.url


async def test_a_text_is_in_the_address_as_soon_as_its_field_is_left(tab: Opened) -> None:
    page = await tab.open(CLASSIFY)
    await page.get_by_label("Text", exact=True).fill("typed and left at once")
    await page.get_by_role("link", name="Models", exact=True).click()
    await expect(page.get_by_role("heading", level=1, name="Models")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_label("Text", exact=True)).to_have_value("typed and left at once")


async def test_the_menu_of_a_narrow_page_closes_behind_a_link(tab: Opened) -> None:
    page = await tab.open("#/models")
    await page.set_viewport_size({"width": 360, "height": 800})
    menu = page.get_by_role("button", name="Menu")
    for name in ("Models", "API"):
        await menu.click()
        await expect(menu).to_have_attribute("aria-expanded", "true")
        await page.get_by_role("link", name=name, exact=True).click()
        await expect(menu).to_have_attribute("aria-expanded", "false")
        await expect(page.get_by_role("link", name=name, exact=True)).to_be_hidden()
    await page.set_viewport_size({"width": 1280, "height": 860})


async def test_escape_closes_the_menu_of_a_narrow_page(tab: Opened) -> None:
    page = await tab.open("#/models")
    await page.set_viewport_size({"width": 360, "height": 800})
    menu = page.get_by_role("button", name="Menu")
    await menu.click()
    await page.keyboard.press("Escape")
    await expect(menu).to_have_attribute("aria-expanded", "false")
    await expect(menu).to_be_focused()
    await expect(page.get_by_role("link", name="API", exact=True)).to_be_hidden()


async def test_an_address_of_no_screen_is_said_and_left(tab: Opened) -> None:
    page = await tab.open("#/no-such-screen?model=spam")
    await expect(page.get_by_role("alert")).to_contain_text("The page has no screen no-such-screen")
    assert "no-such-screen" not in page.url


async def test_the_key_of_a_restricted_group_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    """A wrong one again; it stays out of addresses."""
    settings = {"http_port": 0, "restricted_protocols": "statistics,model-repository:admin-key=abc"}
    async with every_task(tmp_path, **settings) as served:
        url = f"http://127.0.0.1:{served.app.http_port}/"
        async with opened(browser, url) as tab:
            page = await tab.open("#/models")
            dialog = page.get_by_role("dialog", name="This call needs a key")
            await dialog.get_by_label("Key for the header admin-key").fill("wrong")
            await dialog.get_by_role("button", name="Use key").click()
            await expect(dialog).to_contain_text("does not take the key")
            await dialog.get_by_label("Key for the header admin-key").fill("abc")
            await dialog.get_by_role("button", name="Use key").click()
            await expect(page.get_by_role("region", name="Models of the repo")).to_be_visible()
            assert "abc" not in page.url
            tab.complaints[:] = [each for each in tab.complaints if "403" not in each]


async def test_escape_stops_a_run_on_the_server(tab: Opened, server: Served) -> None:
    """The run is held in the graph; the cancelled request is counted, and the page is free."""
    page = await tab.open("#/classify?model=spam&text=win")
    before = await cancelled(tab)
    held = await server.hold("spam")
    await page.keyboard.press("Control+Enter")
    await expect(page.locator(".run .status")).to_have_text("Running")
    await eventually(lambda: server.num_waiting("spam") >= 1)
    await page.keyboard.press("Escape")
    await expect(page.locator(".run .status")).to_have_text("Stopped")
    await eventually(lambda: server.num_waiting("spam") == 0)  # else it may be answered first
    server.release("spam")
    await held
    for _ in range(50):
        if await cancelled(tab) > before:
            return
        await asyncio.sleep(0.1)
    pytest.fail("no request was cancelled on the server")


async def test_a_state_is_saved_and_opened(tab: Opened, tmp_path: Path) -> None:
    page = await tab.open(CLASSIFY)
    await tab.run()
    async with page.expect_download() as saving:
        await page.get_by_role("button", name="Save state").click()
    file = tmp_path / "state.json"
    await (await saving.value).save_as(file)
    state = await asyncio.to_thread(file.read_text)
    assert json.loads(state)["screen"] == "classify"
    await tab.open("#/models")
    await tab.open("#/classify?model=spam")
    await page.get_by_label("State to open").set_input_files(file)
    await expect(page.get_by_label("Text", exact=True)).to_have_value("win a prize")


async def test_a_screen_without_a_model_names_the_command_that_makes_one(
    browser: Browser, tmp_path: Path
) -> None:
    """And it opens by itself once the model is served."""
    settings = {"http_port": 0, "model_control_mode": "explicit", "load_models": "mini"}
    async with every_task(tmp_path, **settings) as served:
        url = f"http://127.0.0.1:{served.app.http_port}/"
        async with opened(browser, url) as tab:
            page = await tab.open("#/classify")
            await expect(page.get_by_text("attendant demo")).to_be_visible()
            await tab.page.evaluate(
                "fetch('v2/repository/models/spam/load', {method: 'POST', body: '{}'})"
            )
            await expect(page.get_by_label("Text", exact=True)).to_be_visible()


async def test_a_token_is_asked_for_and_kept_out_of_addresses(
    browser: Browser, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    await asyncio.to_thread(tokens.write_text, TOKEN + "\n")
    settings = {"http_port": 0, "token_file": str(tokens)}
    async with every_task(tmp_path / "models", **settings) as served:
        url = f"http://127.0.0.1:{served.app.http_port}/"
        async with opened(browser, url) as tab:
            page = await tab.open(CLASSIFY)
            dialog = page.get_by_role("dialog", name="This server asks for a token")
            await dialog.get_by_role("button", name="Cancel").click()
            await expect(page.get_by_text("has not given its list of models")).to_be_visible()
            await page.get_by_role("button", name="Try again").click()
            await dialog.get_by_label("Bearer token").fill("a-wrong-token-of-the-tests")
            await dialog.get_by_role("button", name="Use token").click()
            await expect(dialog).to_contain_text("not known")
            await dialog.get_by_label("Bearer token").fill(TOKEN)
            await dialog.get_by_role("button", name="Use token").click()
            await tab.run()
            assert TOKEN not in page.url
            assert await page.evaluate("Object.keys(localStorage).length") == 0
            await page.reload()
            await expect(page.get_by_label("Text", exact=True)).to_have_value("win a prize")
            tab.complaints[:] = [each for each in tab.complaints if "401" not in each]


async def test_a_model_that_is_unloaded_in_mid_stream_is_said(
    browser: Browser, tmp_path: Path
) -> None:
    settings = {"http_port": 0, "model_control_mode": "explicit", "load_models": "*"}
    async with every_task(tmp_path, **settings, drain_timeout_s=0.2) as served:
        url = f"http://127.0.0.1:{served.app.http_port}/"
        async with opened(browser, url) as tab:
            page = await tab.open("#/generate?model=tale&text=once")
            generate = page.get_by_role("button", name="Generate", exact=True)
            await expect(generate).to_be_visible()
            engine: Any = served.app.repository.find("tale")._engine
            decoder = served.decoders["tale"]
            decoder.hold()
            await generate.click()
            await eventually(lambda: served.num_running("tale") >= 1)
            unload = page.evaluate(
                "fetch('v2/repository/models/tale/unload', {method: 'POST', body: '{}'})"
            )
            asked = asyncio.ensure_future(unload)
            await eventually(lambda: engine._inbox.is_closing)
            decoder.release()
            await asked
            await expect(page.get_by_role("alert").filter(has_text="stopping")).to_be_visible()
            await expect(page.get_by_text("The model is not served any more.")).to_be_visible()
            tab.complaints[:] = [each for each in tab.complaints if "uncaught" in each]


async def test_a_refusal_to_unload_is_said_where_it_can_be_seen(
    browser: Browser, tmp_path: Path
) -> None:
    """A server that polls its repository refuses; the console's form is below the list."""
    settings = {"http_port": 0, "model_control_mode": "poll", "repository_poll_s": 60}
    async with every_task(tmp_path, **settings) as served:
        url = f"http://127.0.0.1:{served.app.http_port}/"
        async with opened(browser, url) as tab:
            page = await tab.open("#/models")
            await page.get_by_role("button", name="Unload spam").click()
            alert = page.get_by_role("alert").filter(has_text="not allowed if polling")
            await expect(alert).to_be_in_viewport()
            await expect(page.get_by_role("button", name="Unload spam")).to_be_enabled()
            tab.complaints.clear()  # the browser's line about status 503


async def test_a_text_that_is_too_long_can_be_cut_and_an_empty_one_is_said(tab: Opened) -> None:
    page = await tab.open("#/classify?model=spam&text=win")
    text = page.get_by_label("Text", exact=True)
    for long in ("x" * 1_500, "win " * 30):
        await text.fill(long)
        await page.keyboard.press("Control+Enter")
        cut = page.get_by_role("button", name="Cut the text")
        await expect(cut).to_be_visible()
        await cut.click()
        await expect(cut).to_have_count(0)
        await tab.until_done()
        assert len(await text.input_value()) < len(long)
        await expect(page.get_by_role("region", name="Result")).to_contain_text("%")
        tab.complaints.clear()  # the server's 400
    await text.fill(" ")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_role("alert").filter(has_text="There is no text")).to_be_visible()
