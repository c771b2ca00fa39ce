"""Batches: a file goes up, its progress is shown, and its results and errors come down."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.fakes.chats import write_chat_model
from tests.fakes.serving import Served, serving, write_models
from tests.playground.browsers import Opened, opened
from tests.playground.test_accessibility import RULES, WIDE, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")
PLAIN_LINE = {"custom_id": "a", "method": "POST", "url": "/v1/completions"}
GOOD = {**PLAIN_LINE, "body": {"model": "tale", "prompt": "a", "max_tokens": 3}}
BAD = {**PLAIN_LINE, "custom_id": "b", "body": {"model": "absent", "prompt": "a"}}


@asynccontextmanager
async def batching(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_models(repository)
    folder = str(repository.parent / "batches")
    async with serving(repository, batch_folder=folder, **settings) as served:
        yield served


SERVE = batching


async def upload(page: Page, name: str, *lines: Any) -> None:
    content = "\n".join(map(json.dumps, lines)).encode()
    field = page.locator("main input[type=file][accept='.jsonl']")
    await field.set_input_files({"name": name, "mimeType": "application/jsonl", "buffer": content})


async def saved(page: Page, button: str) -> Any:
    async with page.expect_download() as told:
        await page.get_by_role("button", name=button).click()
    path = Path(await (await told.value).path())
    return json.loads(path.read_text())  # noqa: ASYNC240 - a few bytes


async def test_a_file_is_uploaded_and_its_results_and_errors_are_saved(tab: Opened) -> None:
    page = await tab.open("#/batches")
    await expect(page.get_by_text("No batch has been begun.")).to_be_visible()
    await upload(page, "two.jsonl", GOOD, BAD)
    row = page.get_by_role("row").filter(has_text="two.jsonl")
    await expect(row).to_contain_text("completed")
    await expect(row).to_contain_text("2 of 2 requests, 1 failed")
    await expect(row).to_contain_text("/v1/completions")
    progress = page.get_by_role("progressbar", name="Progress of two.jsonl")
    assert await progress.evaluate("(bar) => bar.position") == 1
    assert (await saved(page, "Results of two.jsonl"))["custom_id"] == "a"
    assert (await saved(page, "Errors of two.jsonl"))["custom_id"] == "b"
    await expect(page.get_by_role("button", name="Cancel of two.jsonl")).to_have_count(0)


async def test_a_file_that_is_no_batch_fails_with_its_reason(tab: Opened) -> None:
    page = await tab.open("#/batches")
    await upload(page, "wrong.jsonl", {"custom_id": "a"})
    await expect(page.get_by_role("row").filter(has_text="wrong.jsonl")).to_contain_text("method")


async def test_a_batch_is_cancelled(tab: Opened, server: Served) -> None:
    """The model is busy with another request until the batch has ended."""
    held = await server.hold("mini")
    page = await tab.open("#/batches")
    body = {"model": "mini", "input": ["a"]}
    await upload(page, "long.jsonl", {**PLAIN_LINE, "url": "/v1/embeddings", "body": body})
    await page.get_by_role("button", name="Cancel of long.jsonl").click()
    row = page.get_by_role("row").filter(has_text="long.jsonl")
    await expect(row).to_contain_text("cancelled")
    await expect(row).to_contain_text("0 of 1 request")
    server.release("mini")
    await held


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_list_breaks_no_rule_and_fits_a_small_window(
    browser: Browser, address: str, scheme: Any
) -> None:
    async with opened(browser, address, color_scheme=scheme) as tab:
        page = await tab.open("#/batches")
        await upload(page, "seen.jsonl", GOOD, BAD)
        await expect(page.get_by_role("row").filter(has_text="seen.jsonl").first).to_contain_text(
            "completed"
        )
        assert await violations(page, RULES[scheme]) == []
        await page.set_viewport_size({"width": 360, "height": 740})
        assert await page.evaluate(WIDE) == []


async def test_a_server_that_keeps_no_batches_says_what_turns_them_on(
    browser: Browser, tmp_path: Path
) -> None:
    write_chat_model(tmp_path)
    async with (
        serving(tmp_path, http_port=0) as served,
        opened(browser, f"http://127.0.0.1:{served.app.http_port}/") as tab,
    ):
        page = await tab.open("#/batches")
        await expect(page.get_by_text("--batch-folder FOLDER")).to_be_visible()
        await expect(page.get_by_role("button", name="Upload a file")).to_be_hidden()
        tab.complaints.clear()  # the browser's own line about the status 501
