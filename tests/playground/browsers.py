"""Chromium as the playground's tests have it: Debian's, and nothing that leaves the page's origin.

A page fails its test where the console has an error, the policy is violated, or a request leaves
the origin, unless the test has taken the line out of `complaints`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, Request, async_playwright, expect

INSTALLED = [Path("/usr/bin") / name for name in ("chromium-headless-shell", "chromium")]
CHROMIUM = next((path for path in INSTALLED if path.exists()), None)
FLAGS = [
    "--no-sandbox",  # of which containers have none
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # a request elsewhere goes nowhere
]
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
PATIENCE_MS = 20_000  # the cores are shared with other tests
expect.set_options(timeout=PATIENCE_MS)
# Violations reach no handler of Playwright's, so the page collects them.
COLLECT = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""


@dataclass(slots=True)
class Opened:
    """A page of the playground, its address, and what went wrong in it."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    async def open(self, path: str = "") -> Page:
        """Load the page anew at a path of its own, such as `#/models`."""
        await self.page.goto("about:blank")
        await self.page.goto(self.url + path)
        return self.page

    async def call(self, path: str, body: Any) -> Any:
        """What the API answers to the same call, made from the page."""
        script = """([path, body]) => fetch(path, {method: "POST", body: JSON.stringify(body)})
            .then((answer) => answer.json())"""
        return await self.page.evaluate(script, [path, body])

    async def run(self) -> None:
        """Press Run, and wait for the end of the run."""
        await self.page.locator("button.primary").first.click()
        await self.until_done()

    async def until_done(self) -> None:
        status = self.page.locator(".run .status").first
        await self.page.wait_for_function(
            "(status) => !['', 'Running'].includes(status.textContent)",
            arg=await status.element_handle(),
        )

    async def rest(self) -> None:
        """Until what was last changed has been run, shown and saved in the address.

        The page waits for its own clock: what it begins within a time comes before what it begins
        after a longer one, however seldom it has a processor.
        """
        await self.page.evaluate("() => new Promise((done) => setTimeout(done, 400))")
        await self.page.wait_for_function(
            "() => !document.querySelector('main section[aria-busy=true]')"
        )


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser; tests without one are skipped."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: make chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@asynccontextmanager
async def opened(browser: Browser, url: str, **options: Any) -> AsyncIterator[Opened]:
    """A page in a context of its own; `options` are those of Playwright's contexts."""
    context = await browser.new_context(
        viewport=options.pop("viewport", {"width": 1280, "height": 900}), **options
    )
    context.set_default_timeout(PATIENCE_MS)
    await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    page = await context.new_page()
    given = Opened(page, url)

    def guard(request: Request) -> None:
        if not request.url.startswith((url, "blob:", "data:")):
            given.complaints.append(f"a request left the origin: {request.url}")

    page.on("request", guard)  # a route would stop every request until this process has looked
    await page.add_init_script(COLLECT)
    page.on(
        "console",
        lambda line: given.complaints.append(line.text) if line.type == "error" else None,
    )
    page.on("pageerror", lambda error: given.complaints.append(f"uncaught: {error}"))
    try:
        yield given
    finally:
        await context.close()
    assert not given.complaints, "\n".join(given.complaints)
