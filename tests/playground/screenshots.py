"""`python -m tests.playground.screenshots OUT`: every screen, in both schemes and widths.

It serves a repository of its own process (`--repository`), or takes a server that runs (`--url`).
"""

import argparse
import asyncio
import re
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

from PIL import Image
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
# Pictures of the playground's page, by their names in docs/pictures: an address, and a scheme.
OF_THE_PAGE = {
    "playground-generate": (
        "#/generate?model=gpt&text=When a class definition is executed,&temperature=0.6&min_p=0.05"
        "&repetition_penalty=1.1&keep_seed=true&seed=2&run=1",
        "light",
    ),
    "playground-fill-mask": (
        "#/fill-mask?model=bert&first=In Texas, they like to buy [MASK].&run=1"
        "&second=In New York, they like to buy [MASK].&top_k=12",
        "light",
    ),
    "playground-heads": ("#/heads?model=attention", "dark"),
    "playground-images": ("#/images?model=digits", "dark"),
}
COLOURS = 128  # of those pictures, which are then a third as large
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


async def _run_an_example(page: Page, at: int = 1) -> None:
    await page.wait_for_selector(".split > *:visible, .empty-state:visible")
    await page.wait_for_timeout(SETTLE_MS)
    if not await page.locator(".field.model").count():  # it takes no model, or has none
        return
    menu = page.get_by_label("Examples")
    if await menu.count() and await menu.first.is_visible():
        await menu.first.select_option(
            index=min(at, await menu.first.locator("option").count() - 1)
        )
    elif await (run := page.locator(".run button.primary:visible")).count():
        await run.first.click()
    await _until_done(page)
    await page.wait_for_timeout(SETTLE_MS)


async def _until_done(page: Page) -> None:
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


async def photograph_readme(browser: Browser, url: str, out: Path) -> None:
    """The pictures of the playground's page, with few colours."""
    for name, (address, scheme) in OF_THE_PAGE.items():
        page = await browser.new_page(
            viewport={"width": 1280, "height": 800},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        await page.goto(url + address)
        if "run=1" in address:
            await page.wait_for_timeout(SETTLE_MS)
            await _until_done(page)
        else:
            await _run_an_example(page, at=4)
        if await (token := page.locator(".document .token").nth(9)).count():
            await token.hover()  # lists what could have stood there
        await page.wait_for_timeout(3 * SETTLE_MS)
        taken = Image.open(BytesIO(await page.screenshot())).convert("RGB")
        taken.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
            out / f"{name}.png", optimize=True
        )
        await page.close()


async def main() -> None:
    """Serve, if no server is named, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repository", type=Path, default=ROOT / "model_repository")
    parser.add_argument("--url", help="of a server that runs, http://host:port/")
    parser.add_argument("--screens", nargs="*", default=IDS)
    parser.add_argument("--whole", action="store_true", help="the whole page, not what is seen")
    parser.add_argument("--readme", action="store_true", help="the pictures of docs only")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        url = given.url
        if url is None:
            server = stack.enter_context(ServerProcess(given.repository, "--http-port=0"))
            url = f"http://{server.http_address}/"
        async with chromium() as browser:
            if given.readme:
                await photograph_readme(browser, url, given.out)
            else:
                await photograph(browser, url, given.out, given.screens, whole=given.whole)


if __name__ == "__main__":
    asyncio.run(main())
