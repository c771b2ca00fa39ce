"""No screen breaks a rule of axe-core with a result in it; in dark those of colours only."""

from pathlib import Path
from typing import Any, cast

import axe_playwright_python
import pytest
from playwright.async_api import Browser, Page

from tests.playground.browsers import opened
from tests.playground.test_files import SCREENS

pytestmark = pytest.mark.asyncio(loop_scope="module")
WIDE = """() => [...document.querySelectorAll("main *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
    .filter((each) => !each.closest(".scroll"))
    .map((each) => each.outerHTML.slice(0, 120))"""
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
IDS = [path.stem.replace("_", "-") for path in SCREENS if path.exists()]
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
TALL = {"width": 1280, "height": 3_000}  # nothing is below the strip, where it could not be pressed
RULES = {"light": TAGS, "dark": ["color-contrast"]}


async def violations(page: Page, rules: list[str]) -> list[str]:
    """One line for each element that breaks a rule."""
    # Playwright evaluates outside of the page's policy, which allows no script but its own.
    await page.evaluate(AXE)
    found = await page.evaluate("(rules) => axe.run({runOnly: rules})", rules)
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary'][:240]}"
        for rule in cast("list[dict[str, Any]]", found["violations"])
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", IDS)
async def test_no_rule_is_broken(browser: Browser, address: str, screen: str, scheme: Any) -> None:
    async with opened(browser, address, color_scheme=scheme, viewport=TALL) as tab:
        page = await tab.open(f"#/{screen}")
        await page.wait_for_selector(".screen .split > *, .empty-state")
        await page.wait_for_timeout(300)
        run = page.locator(".run button.primary:visible")
        if await page.locator(".field.model").count() and await run.count():
            await run.first.click()
            await page.wait_for_timeout(700)
        found = await violations(page, RULES[scheme])
        tab.complaints.clear()  # a fake model refuses what the screen begins with
        assert not found, "\n".join(dict.fromkeys(found))


@pytest.mark.parametrize("screen", IDS)
async def test_no_screen_is_wider_than_a_small_window(
    browser: Browser, address: str, screen: str
) -> None:
    """360 pixels of a telephone, and 640, which 1,280 pixels are at 200 % zoom."""
    async with opened(browser, address, viewport={"width": 360, "height": 740}) as tab:
        page = await tab.open(f"#/{screen}")
        await page.wait_for_selector(".screen .split > *, .empty-state")
        await page.wait_for_timeout(300)
        run = page.locator(".run button.primary:visible")
        if await page.locator(".field.model").count() and await run.count():
            await run.first.click()
            await page.wait_for_timeout(700)
        for width in (360, 640):
            await page.set_viewport_size({"width": width, "height": 740})
            await page.wait_for_timeout(200)
            wide = await page.evaluate(WIDE)
            scrolls = await page.evaluate("document.scrollingElement.scrollWidth > innerWidth")
            tab.complaints.clear()  # a fake model refuses what the screen begins with
            assert not scrolls, wide
