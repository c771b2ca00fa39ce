"""No screen breaks a rule of axe-core with a result in it; in dark those of colours only."""

from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.async_api import Browser, Page

from tests.playground.browsers import TWO_FRAMES, Opened, opened
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
# What is on a screen without a model once it is complete; every other screen has a Run.
LISTED = {
    "home": "main .bars button",
    "inside": "main [role=tabpanel] td",
    "positions": "main canvas",
    "models": "main tbody tr",
    "batches": "main .placeholder",
    "api": "nav[aria-label=Operations] button",
}
DONE = """() => {
    const results = [...document.querySelectorAll("main section[aria-busy]")];
    return results.length > 0 && results.every((each) => each.ariaBusy === "false");
}"""


async def completed(tab: Opened, screen: str) -> Page:
    """A screen with what its Run gives; a fake model may refuse what the screen begins with."""
    page = await tab.open(f"#/{screen}")
    if screen in LISTED:
        await page.locator(LISTED[screen]).first.wait_for()
    else:
        await page.locator(".run button.primary:visible").first.click()
        await page.wait_for_function(DONE)
    return page


async def leave(tab: Opened) -> None:
    """Close the screen, and forget the browser's lines about what fake models refused."""
    await tab.page.goto("about:blank")
    tab.complaints.clear()


async def violations(page: Page, rules: list[str]) -> list[str]:
    """One line for each element that breaks a rule."""
    # Playwright evaluates outside of the page's policy, which allows no script but its own.
    await page.evaluate(AXE)
    script = """(rules) => axe.run({runOnly: rules, resultTypes: ["violations"]})
        .then(({violations}) => violations)"""
    found: list[dict[str, Any]] = await page.evaluate(script, rules)
    return [
        f"{rule['id']}: {node['html'][:160]} {node['failureSummary'][:240]}"
        for rule in found
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", IDS)
async def test_no_rule_is_broken(browser: Browser, address: str, screen: str, scheme: Any) -> None:
    options = {"color_scheme": scheme, "viewport": TALL, "reduced_motion": "reduce"}
    async with opened(browser, address, **options) as tab:
        page = await completed(tab, screen)
        found = await violations(page, RULES[scheme])
        await leave(tab)
        assert not found, "\n".join(dict.fromkeys(found))


@pytest.mark.parametrize("screen", IDS)
async def test_no_screen_is_wider_than_a_small_window(
    browser: Browser, address: str, screen: str
) -> None:
    """360 pixels of a telephone, and 640, which 1,280 pixels are at 200 % zoom."""
    async with opened(browser, address, viewport={"width": 360, "height": 740}) as tab:
        page = await completed(tab, screen)
        for width in (360, 640):
            await page.set_viewport_size({"width": width, "height": 740})
            await page.evaluate(TWO_FRAMES)  # pictures are drawn anew in the one after a resize
            wide = await page.evaluate(WIDE)
            scrolls = await page.evaluate("document.scrollingElement.scrollWidth > innerWidth")
            assert not scrolls, wide
        await leave(tab)
