"""The models, the tensor console, and the description of the API."""

import json
import shutil
from pathlib import Path

import pytest
from playwright.async_api import Browser, Route, expect

from tests.fakes.serving import serving, write_models
from tests.playground.browsers import Opened, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"model_control_mode": "explicit", "load_models": "*"}


async def test_models_are_listed_with_their_tensors_and_statistics(tab: Opened) -> None:
    page = await tab.open("#/models?name=spam")
    rows = page.get_by_role("region", name="Models of the repository").get_by_role("row")
    index = await tab.call("v2/repository/index", {})
    await expect(rows).to_have_count(len(index) + 1)
    await expect(page.get_by_role("heading", name="spam")).to_be_visible()
    await expect(page.get_by_role("region", name="Tensors")).to_contain_text("BYTES")
    await page.get_by_role("tab", name="Configuration").click()
    await expect(page.get_by_label("Configuration").last).to_contain_text("max_batch_size")
    await page.get_by_role("tab", name="Statistics").click()
    await expect(page.get_by_role("region", name="Requests")).to_contain_text("Answered")


async def test_the_console_sends_tensors_and_shows_what_comes_back(tab: Opened) -> None:
    """`simple` adds and subtracts two inputs of 16 numbers."""
    page = await tab.open("#/models?name=simple")
    await page.get_by_role("tab", name="Console").click()
    for name, number in (("INPUT0", 3), ("INPUT1", 2)):
        await page.get_by_label(f"{name} (INT32)", exact=True).fill(json.dumps([number] * 16))
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_label("Values of OUTPUT0")).to_have_text(
        json.dumps([5] * 16, separators=(",", ":"))
    )
    await expect(page.get_by_label("Values of OUTPUT1")).to_contain_text("[1,1,1")


async def test_wrong_data_is_told_at_its_field(tab: Opened) -> None:
    page = await tab.open("#/models?name=simple")
    await page.get_by_role("tab", name="Console").click()
    field = page.get_by_label("INPUT0 (INT32)", exact=True)
    await field.fill("one")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("Expected a list as JSON has it.")).to_be_visible()
    assert await field.get_attribute("aria-invalid") == "true"


async def test_a_state_that_passes_is_shown_until_it_has_passed(tab: Opened) -> None:
    """An unload waits for the requests of the model, and no event says when it is done."""
    answers = 0

    async def unloading_at_first(route: Route) -> None:
        nonlocal answers
        answers += 1
        models = await (await route.fetch()).json()
        if answers == 1:
            models = [each | {"state": "UNLOADING"} for each in models]
        await route.fulfill(json=models)

    await tab.page.route("**/v2/repository/index", unloading_at_first)
    page = await tab.open("#/models?name=mini")
    row = page.get_by_role("row").filter(has=page.get_by_role("button", name="mini", exact=True))
    await expect(row).to_contain_text("ready")
    assert answers > 1


async def test_a_wrong_shape_is_told_at_its_field(tab: Opened) -> None:
    """By the page where the data have not as many values, else by the server."""
    page = await tab.open("#/models?name=simple")
    await page.get_by_role("tab", name="Console").click()
    for name in ("INPUT0", "INPUT1"):
        await page.get_by_label(f"{name} (INT32)", exact=True).fill(json.dumps([1] * 16))
    field = page.get_by_label("Shape of INPUT1")
    for shape, text in (
        ("1, 15", "The shape has room for 15 values, and the data are 16."),
        ("a", "Expected whole numbers with commas between them."),
        ("1, 2, 8", "unexpected shape for input 'INPUT1' for model 'simple'."),
        ("2, 8", "batch size does not match other inputs"),
    ):
        await field.fill(shape)
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_text(text)).to_be_visible()
        assert await field.get_attribute("aria-invalid") == "true"
    tab.complaints.clear()  # the server's 400
    await field.fill("1, 16")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_label("Values of OUTPUT0")).to_be_visible()
    assert await field.get_attribute("aria-invalid") == "false"


async def test_versions_are_shown_apart(browser: Browser, tmp_path: Path) -> None:
    write_models(tmp_path)
    shutil.copytree(tmp_path / "spam/1", tmp_path / "spam/2")
    with (tmp_path / "spam/config.pbtxt").open("a", encoding="utf-8") as config:
        config.write("\nversion_policy { all {} }\n")
    async with (
        serving(tmp_path, http_port=0) as served,
        opened(browser, f"http://127.0.0.1:{served.app.http_port}/") as tab,
    ):
        page = await tab.open("#/models?name=spam/2")
        await expect(page.get_by_role("heading", name="spam, version 2")).to_be_visible()
        await page.get_by_role("button", name="spam", exact=True).first.click()
        await expect(page.get_by_role("heading", name="spam, version 1")).to_be_visible()
        sent = []
        page.on("request", lambda request: sent.append(request.url))
        await page.get_by_role("tab", name="Console").click()
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_label("Values of label")).to_be_visible()
    assert any(url.endswith("v2/models/spam/versions/1/infer") for url in sent)


async def test_a_model_is_unloaded_and_loaded(tab: Opened) -> None:
    page = await tab.open("#/models?name=mini")
    await page.get_by_role("button", name="Unload mini").click()
    await expect(page.get_by_role("button", name="Load mini", exact=True)).to_be_visible()
    await expect(page.get_by_text("Not served now.")).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_role("button", name="mini", exact=True))
    await expect(row).to_contain_text("not loaded")
    await expect(row).not_to_contain_text("any")
    tab.complaints.clear()  # the server's 400 for its metadata
    await page.get_by_role("button", name="Load mini", exact=True).click()
    await expect(page.get_by_role("button", name="Unload mini")).to_be_visible()


async def test_every_operation_of_the_description_is_there(tab: Opened) -> None:
    page = await tab.open("#/api?others=true")
    document = await page.evaluate("fetch('openapi.json').then((answer) => answer.json())")
    operations = page.get_by_role("navigation", name="Operations").get_by_role("button")
    await expect(operations).to_have_count(sum(map(len, document["paths"].values())))
    await page.get_by_label("Find").fill("post api similarity")
    await expect(operations).to_have_text(["POST /api/Similarity"])


async def test_an_operation_is_tried(tab: Opened) -> None:
    page = await tab.open("#/api?operation=POST+%2Fapi%2FClassify")
    await expect(page.get_by_text("attendant.v1.TextService/Classify over gRPC")).to_be_visible()
    body = {"model": "spam", "texts": ["win a prize"]}
    await page.get_by_label("Body", exact=True).fill(json.dumps(body))
    await page.get_by_role("button", name="Send").click()
    shown = json.loads(await page.get_by_label("Answer of the server").inner_text())
    answered = await tab.call("api/Classify", body)
    assert shown["results"] == answered["results"]
