"""The strip of live numbers: what it shows, when it asks, and how much memory it takes."""

import asyncio
import os

import pytest
from playwright.async_api import Page, expect

from tests.fakes.every_task import GENERATED
from tests.playground.browsers import Opened

pytestmark = pytest.mark.asyncio(loop_scope="module")
# 30 minutes of one poll a second: LIVE_POLLS=1800.
POLLS = int(os.environ.get("LIVE_POLLS", "150"))
MOST_GROWTH_BYTES = 300_000
WAIT = "(ms) => new Promise((done) => setTimeout(done, ms))"  # by the clock of the page's own polls
POLL = """async (count) => {
  const shell = document.querySelector("script[src$='app.js']").src;
  const { poll } = await import(new URL("parts/live_strip.js", shell));
  for (let made = 0; made < count; made++) await poll();
}"""


async def heap_bytes(page: Page) -> int:
    session = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    used: int = (await session.send("Runtime.getHeapUsage"))["usedSize"]
    await session.detach()
    return used


async def test_numbers_follow_the_calls(tab: Opened) -> None:
    page = await tab.open("#/models")
    strip = page.get_by_role("contentinfo", name="Live numbers")
    await expect(strip).to_contain_text("Ready")
    await tab.call("api/GenerateUnary", GENERATED)
    await expect(strip.get_by_role("link", name="p50")).not_to_contain_text("\u2013")
    await expect(strip.get_by_role("link", name="Tokens/s")).not_to_have_text("Tokens/s0")


async def test_it_asks_nothing_while_it_is_paused_or_the_tab_is_hidden(tab: Opened) -> None:
    page = await tab.open("#/models")
    strip = page.get_by_role("contentinfo", name="Live numbers")
    await expect(strip).to_contain_text("Ready")
    asked: list[str] = []
    page.on("request", lambda made: asked.append(made.url) if "api/live" in made.url else None)
    await page.wait_for_event("request", lambda made: "api/live" in made.url)
    await strip.get_by_role("button", name="Pause").click()
    await page.evaluate(WAIT, 300)  # one may be on its way
    asked.clear()
    await page.evaluate(WAIT, 1_500)
    assert not asked
    await strip.get_by_role("button", name="Resume").click()
    await page.evaluate("""() => {
        Object.defineProperty(document, "hidden", {value: true, configurable: true});
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    await page.evaluate(WAIT, 300)
    asked.clear()
    await page.evaluate(WAIT, 1_500)
    assert not asked


@pytest.mark.timeout(300 + 3 * POLLS)
async def test_its_memory_stays_flat(tab: Opened) -> None:
    """Once it is warm; the rest of the page does nothing meanwhile."""
    page = await tab.open("#/models")
    await expect(page.get_by_role("contentinfo", name="Live numbers")).to_contain_text("Ready")
    page.set_default_timeout(0)
    await page.evaluate(POLL, 80)
    before = await heap_bytes(page)
    await page.evaluate(POLL, POLLS)
    await asyncio.sleep(0)
    assert await heap_bytes(page) - before < MOST_GROWTH_BYTES
