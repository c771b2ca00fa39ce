"""`python -m tests.playground.screenshots OUT`: every screen, in both schemes and widths.

It serves a repository of its own process (`--repository`), or takes a server that runs (`--url`).
"""

import argparse
import asyncio
import re
from contextlib import ExitStack
from pathlib import Path

from playwright.async_api import Browser, Page
from playwright.async_api import TimeoutError as TooSlow

from tests.e2e.server import ServerProcess
from tests.playground.browsers import chromium

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "playground/screens/catalogue.js"
IDS = re.findall(r'{ id: "([^"]+)"', CATALOGUE.read_text(encoding="utf-8"))
WIDTHS = {"wide": 1280, "narrow": 360}
SCHEMES = ("light", "dark")
HEIGHT = 860
RUN_LIMIT_MS = 20_000
SETTLE_MS = 600  # for canvases and the live strip


async def photograph(browser: Browser, url: str, out: Path, ids: list[str], *, whole: bool) -> None:
    """A file for each screen, scheme and width: `ID-SCHEME-WIDTH.png`."""
    for scheme in SCHEMES:
        for name, width in WIDTHS.items():
            context = await browser.new_context(
                viewport={"width": width, "height": HEIGHT},
                color_scheme="dark" if scheme == "dark" else "light",
            )
            page = await context.new_page()
            for each in ids:
                await page.goto("about:blank")
                await page.goto(f"{url}#/{each}")
                await _run_an_example(page)
                path = out / f"{each}-{scheme}-{name}.png"
                await page.screenshot(path=path, full_page=whole)
            await context.close()


async def _run_an_example(page: Page) -> None:
    await page.wait_for_selector(".split > *:visible, .empty-state:visible")
    await page.wait_for_timeout(SETTLE_MS)
    if not await page.locator(".field.model").count():  # it takes no model, or has none
        return
    menu = page.get_by_label("Examples")
    if await menu.count() and await menu.first.is_visible():
        await menu.first.select_option(index=1)
    elif await (run := page.locator(".run button.primary:visible")).count():
        await run.first.click()
    status = page.locator(".run .status").first
    if await status.count():
        try:
            await page.wait_for_function(
                "(status) => !['', 'Running'].includes(status.textContent)",
                arg=await status.element_handle(),
                timeout=RUN_LIMIT_MS,
            )
        except TooSlow:
            print(f"{page.url}: no answer in {RUN_LIMIT_MS / 1000:g} s")  # noqa: T201
    await page.wait_for_timeout(SETTLE_MS)


async def main() -> None:
    """Serve, if no server is named, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repository", type=Path, default=ROOT / "model_repository")
    parser.add_argument("--url", help="of a server that runs, http://host:port/")
    parser.add_argument("--screens", nargs="*", default=IDS)
    parser.add_argument("--whole", action="store_true", help="the whole page, not what is seen")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = given.url
        if url is None:
            server = stack.enter_context(ServerProcess(given.repository, "--http-port=0"))
            url = f"http://{server.http_address}/"
        async with chromium() as browser:
            await photograph(browser, url, given.out, given.screens, whole=given.whole)


if __name__ == "__main__":
    asyncio.run(main())
