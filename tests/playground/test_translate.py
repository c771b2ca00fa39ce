"""From sequence to sequence, in a real browser: the output, and where the model looked for it."""

import json
import re
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page, Request, Route, expect

from tests.playground.browsers import Opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

# `writes` writes its source backwards, and `crossed` has weights that depend on both tokens.
SOURCE, OUTPUT = "win prize free", "free prize win"
URL = "#/translate?model=writes&by=crossed&source="


async def matrix_of(tab: Opened, source: str, target: str, head: int | None = None) -> np.ndarray:
    """[queries, keys] in the first layer: of a head, or the mean of all."""
    body: dict[str, Any] = {"model": "crossed", "text": source, "target": target, "layers": [0]}
    answer = await tab.call("api/Attend", body)
    matrices = [np.array(each["weights"]) for each in answer["matrices"]]
    chosen = np.mean(matrices, axis=0) if head is None else matrices[head]
    return chosen.reshape(len(answer["queries"]), len(answer["keys"]))


async def cells_of(page: Page) -> list[list[str]]:
    """The matrix as its table has it."""
    await page.get_by_text("As a table").click()
    table = page.get_by_role("region", name="Attention to the source")
    await expect(table).to_be_visible()
    rows = await table.locator("tbody tr").all()
    texts = [await row.locator("td, th").all_inner_texts() for row in rows]
    return [row[1:] for row in texts]


def written(matrix: np.ndarray) -> list[list[str]]:
    return [[f"{weight:.3f}" for weight in row] for row in matrix]


async def test_output_and_matrix_are_those_of_the_api(tab: Opened) -> None:
    page = await tab.open(f"{URL}{SOURCE.replace(' ', '+')}&run=1")
    await tab.until_done()
    await expect(page.locator("output.written")).to_have_text(OUTPUT)
    status = page.locator(".run .status")
    await expect(status).to_have_text(re.compile("^queue .*, first token .*, in all "))
    assert await cells_of(page) == written(await matrix_of(tab, SOURCE, OUTPUT))


async def test_one_head_is_shown_and_stays_in_the_permalink(tab: Opened) -> None:
    page = await tab.open(f"{URL}win&run=1")
    await tab.until_done()
    await page.get_by_label("Head", exact=True).select_option("1")
    expected = written(await matrix_of(tab, "win", "win", 1))
    assert await cells_of(page) == expected
    await tab.rest()  # the address follows a change
    await page.reload()
    await tab.until_done()
    assert await cells_of(page) == expected


async def test_a_token_of_the_output_shades_the_source_that_it_looked_at(tab: Opened) -> None:
    page = await tab.open(f"{URL}{SOURCE.replace(' ', '+')}&run=1")
    await tab.until_done()
    matrix = await matrix_of(tab, SOURCE, OUTPUT)
    outputs = page.get_by_role("group", name="Output").locator(".token")
    await outputs.nth(1).focus()
    shades = "(tokens) => tokens.map((each) => Number(each.style.getPropertyValue('--shade')))"
    sources = page.get_by_role("group", name="Source").locator(".token")
    assert await sources.evaluate_all(shades) == pytest.approx(matrix[1].tolist(), abs=1e-6)
    await page.keyboard.press("ArrowRight")
    assert await sources.evaluate_all(shades) == pytest.approx(matrix[2].tolist(), abs=1e-6)


async def test_another_source_is_read_without_a_click_and_its_cells_flash(tab: Opened) -> None:
    page = await tab.open(f"{URL}win+prize&run=1")
    await tab.until_done()
    await page.get_by_role("textbox", name="Source").fill("a win")
    await expect(page.locator("output.written")).to_have_text("win a")
    await expect(page.locator("figure.picture[data-marked]")).to_have_count(1)
    await expect(page.locator("figure.picture[data-marked]")).to_have_count(0)


async def test_the_matrix_grows_while_the_output_streams(tab: Opened) -> None:
    """Each request has more of the output than the one before, and the last one all of it."""
    pieces = ["free", " prize", " win"]
    targets: list[str] = []

    async def stream(route: Route) -> None:
        body = "".join(f"data: {json.dumps({'text': piece})}\n\n" for piece in pieces)
        await route.fulfill(content_type="text/event-stream", body=body)

    def keep(request: Request) -> None:
        if request.url.endswith("/Attend"):
            targets.append(json.loads(request.post_data or "")["target"])

    await tab.page.route("**/api/Generate", stream)
    tab.page.on("request", keep)
    await tab.open(f"{URL}{SOURCE.replace(' ', '+')}&run=1")
    await tab.until_done()
    assert targets[0] == "free"
    assert targets[-1] == OUTPUT
    assert all(OUTPUT.startswith(target) for target in targets)


async def test_a_model_of_dates_is_judged_by_the_date(tab: Opened) -> None:
    async def stream(route: Route) -> None:
        body = f"data: {json.dumps({'text': '2021-03-03'})}\n\n"
        await route.fulfill(content_type="text/event-stream", body=body)

    await tab.page.route("**/api/Generate", stream)
    page = await tab.open(f"{URL}3rd+of+March+'21&run=1")
    await expect(page.get_by_text("The date is 2021-03-03.")).to_be_visible()
    await expect(page.locator(".chip")).to_have_text("right")
    await page.get_by_role("textbox", name="Source").fill("4 Mar 21")
    await expect(page.locator(".chip")).to_have_text("wrong")
    tab.complaints.clear()


async def test_attention_of_an_encoder_decoder_is_of_what_it_writes(tab: Opened) -> None:
    """Where no output is given, that of the generator is."""
    page = await tab.open("#/attention?model=crossed&text=win+prize&run=1")
    await tab.until_done()
    assert await page.get_by_label("Output that the model reads again").input_value() == "prize win"
    for name in ("Queries", "Keys"):
        tokens = page.get_by_role("group", name=name).get_by_role("button")
        await expect(tokens.first).to_be_visible()


@pytest.mark.parametrize("screen", ["attention", "heads"])
async def test_an_example_brings_the_output_that_is_read_again(tab: Opened, screen: str) -> None:
    """An output that is left of the text before would be shown as that of the example."""

    async def with_examples(route: Route) -> None:
        answer = await (await route.fetch()).json()
        for model in answer["models"]:
            pairs = [("win prize", "prize win"), ("a win", "win a")]
            model["examples"] = [{"text": text, "text_pair": output} for text, output in pairs]
        await route.fulfill(json=answer)

    await tab.page.route("**/api/ListModels", with_examples)
    page = await tab.open(f"#/{screen}?model=crossed")
    await tab.until_done()
    output = page.get_by_label("Output that the model reads again")
    await expect(output).to_have_value("prize win")
    await page.get_by_label("Examples").select_option(label="a win / win a")
    await expect(output).to_have_value("win a")
    await tab.until_done()
