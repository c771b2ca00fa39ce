"""The heads of an attention model, in a real browser: what is shown is what the API says."""

import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, Request, expect

import tests
from service.app import App
from service.settings import Settings
from tests.playground.browsers import Opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOLDER = Path(tests.__file__).parent
TEXT = "free lunch tomorrow"  # [CLS] free lunch tomorrow [SEP]
SIZE = 5
HEADS = f"#/attention?model=encoder-attention&text={TEXT.replace(' ', '+')}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A server of a classifier, of the attention of another, and of an encoder-decoder."""
    repository = tmp_path_factory.mktemp("model_repository")
    for model in (
        FOLDER / "playground/repository/encoder-attention",
        FOLDER / "saved/repository/encoder-classifier",
        FOLDER / "saved/repository/transformer",
    ):
        shutil.copytree(model, repository / model.name)
    app = App(Settings(repository, grpc_port=0, http_port=0, metrics_port=0, measure_cost_s=0))
    await app.start()
    yield f"http://127.0.0.1:{app.http_port}/"
    await app.stop()


async def weights_of(tab: Opened, layer: int, head: int, text: str = TEXT) -> np.ndarray:
    """[queries, keys] of a head."""
    body = {"model": "encoder-attention", "text": text, "layers": [layer], "heads": [head]}
    answer = await tab.call("api/Attend", body)
    return np.array(answer["matrices"][0]["weights"]).reshape(SIZE, SIZE)


def query(page: Page, index: int) -> Locator:
    return page.get_by_role("group", name="Queries").get_by_role("button").nth(index)


async def shown_weights(page: Page) -> list[float]:
    """Of the token that is pointed at, in percent, the largest first."""
    values = await page.locator("aside .bars .value").all_inner_texts()
    return [float(value.removeprefix("<").removesuffix(" %")) for value in values]


def percents(weights: np.ndarray) -> list[float]:
    return sorted((100 * weights).tolist(), reverse=True)


async def test_a_token_shows_the_weights_that_the_api_gives(tab: Opened) -> None:
    """Of the second query in head 1 of the last layer; and of the mean of all heads."""
    page = await tab.open(f"{HEADS}&layer=1&heads=%5B1%5D&run=1")
    await tab.until_done()
    await query(page, 1).hover()
    row = (await weights_of(tab, 1, 1))[1]
    assert await shown_weights(page) == pytest.approx(percents(row), abs=0.06)
    await page.locator(".tiles button").first.focus()
    await page.keyboard.press("a")
    await query(page, 1).hover()
    mean = np.mean([(await weights_of(tab, 1, head))[1] for head in range(4)], axis=0)
    assert await shown_weights(page) == pytest.approx(percents(mean), abs=0.06)


async def test_without_a_token_the_strongest_lines_are_listed(tab: Opened) -> None:
    """Each as wide as its weight; a token that is kept has the table's lines, too."""
    page = await tab.open(f"{HEADS}&layer=1&heads=%5B1%5D&limit=1&run=1")
    await tab.until_done()
    weights = await weights_of(tab, 1, 1)
    await page.mouse.move(0, 0)
    assert await shown_weights(page) == pytest.approx(percents(weights.ravel())[:SIZE], abs=0.06)
    await page.get_by_text("As a table").first.click()
    lines = page.get_by_role("region", name="The strongest lines").locator("tbody tr")
    await expect(lines).to_have_count(SIZE * SIZE)
    await query(page, 2).click()
    await expect(lines).to_have_count(SIZE)


async def test_an_emptied_text_asks_for_nothing_and_frames_what_was_shown(tab: Opened) -> None:
    page = await tab.open(f"{HEADS}&run=1")
    await tab.until_done()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await page.get_by_label("Text", exact=True).fill("")
    await expect(page.locator("section[aria-label=Result]")).to_have_class(re.compile("stale"))
    assert not [url for url in requests if url.endswith("/Attend")]


async def test_special_tokens_are_hidden_and_the_rest_is_scaled_to_one(tab: Opened) -> None:
    page = await tab.open(f"{HEADS}&layer=0&heads=%5B0%5D&hide=true&run=1")
    await tab.until_done()
    await query(page, 2).hover()
    row = (await weights_of(tab, 0, 0))[2].copy()
    row[[0, -1]] = 0
    assert await shown_weights(page) == pytest.approx(percents(row / row.sum()), abs=0.06)
    await page.get_by_label("Scale the rest to 1").uncheck()
    await query(page, 2).hover()
    assert await shown_weights(page) == pytest.approx(percents(row), abs=0.06)


async def test_heads_layers_tokens_and_masks_are_reached_by_keys(tab: Opened) -> None:
    """The tile's o, the arrows of a token, Enter to keep it and m to mask it."""
    page = await tab.open(f"{HEADS}&run=1")
    await tab.until_done()
    await page.locator(".tiles button").first.focus()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("o")
    pressed = page.locator(".tiles [aria-pressed=true]")
    await expect(pressed).to_have_count(1)
    await expect(pressed).to_have_attribute("data-head", "1")
    await query(page, 0).focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowRight")
    assert await page.get_by_label("Layer", exact=True).input_value() == "1"
    await page.keyboard.press("Enter")
    await expect(query(page, 1)).to_have_attribute("aria-pressed", "true")
    await page.mouse.move(0, 0)
    assert await shown_weights(page) == pytest.approx(
        percents((await weights_of(tab, 1, 1))[1]), abs=0.06
    )
    await page.keyboard.press("m")
    change = page.get_by_label("Change by the mask")
    await expect(change.get_by_role("row")).to_have_count(3)
    await expect(change).to_contain_text("free is left out")
    body = {"model": "encoder-classifier", "texts": [" lunch tomorrow"], "all_scores": True}
    answer = await tab.call("api/Classify", body)
    best = answer["results"][0]["labels"][0]
    await expect(change).to_contain_text(best["label"])
    await expect(change).to_contain_text(f"{100 * best['score']:.1f} %")
    await expect(page.get_by_role("group", name="Keys").get_by_role("button")).to_have_count(4)
    await change.get_by_role("button").click()
    await expect(page.get_by_role("group", name="Keys").get_by_role("button")).to_have_count(SIZE)


async def test_a_permalink_shows_the_same_token_of_the_same_head(tab: Opened) -> None:
    page = await tab.open(f"{HEADS}&run=1")
    await tab.until_done()
    await page.locator(".tiles button").nth(2).dblclick()
    await query(page, 3).click()
    before = await page.locator("aside").inner_text()
    await expect(page).to_have_url(re.compile("frozen"))
    await page.reload()
    await tab.until_done()
    await expect(page.locator("aside")).to_have_text(before, use_inner_text=True)


async def test_the_matrix_has_a_table_and_files_with_every_weight(tab: Opened) -> None:
    page = await tab.open(f"{HEADS}&layer=1&heads=%5B3%5D&run=1")
    await tab.until_done()
    weights = await weights_of(tab, 1, 3)
    async with page.expect_download() as saved:
        await page.get_by_role("button", name="Save JSON").click()
    exported = json.loads((await (await saved.value).path()).read_text())
    assert exported["weights"] == pytest.approx(weights.ravel().tolist(), abs=1e-6)
    async with page.expect_download() as saved:
        await page.get_by_role("button", name="Save CSV").click()
    lines = (await (await saved.value).path()).read_text().splitlines()
    assert len(lines) == 1 + SIZE * SIZE
    await page.get_by_role("tab", name="Matrix").click()
    await expect(page.get_by_label("Weights of layer 1").first).to_be_visible()
    await page.get_by_role("tabpanel", name="Matrix").get_by_text("As a table").click()
    table = page.get_by_role("region", name="Weights of layer 1")
    await expect(table).to_be_visible()
    shown = await table.locator("tbody tr").first.locator("td, th").all_inner_texts()
    assert shown[1:] == [f"{weight:.3f}" for weight in weights[0]]


async def test_the_arrow_keys_read_a_matrix(tab: Opened) -> None:
    page = await tab.open(f"{HEADS}&layer=0&heads=%5B0%5D&run=1")
    await tab.until_done()
    await page.get_by_role("tab", name="Matrix").click()
    await page.get_by_label("Weights of layer 0").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        await page.keyboard.press(key)
    weight = (await weights_of(tab, 0, 0))[1, 1]
    await expect(page.get_by_role("tooltip")).to_have_text(f"free 1 → free 1: {weight:.3f}")


async def test_tokens_are_named_as_the_text_has_them(tab: Opened) -> None:
    """The vocabulary has lower case only, and marks where a word continues."""
    page = await tab.open("#/attention?model=encoder-attention&text=Free+Zz&run=1")
    await tab.until_done()
    tokens = page.get_by_role("group", name="Keys").get_by_role("button")
    assert await tokens.all_inner_texts() == ["[CLS]", "Free", "Z", "##z", "[SEP]"]


async def test_a_beam_search_has_its_outputs_with_their_scores(tab: Opened) -> None:
    """Where no attention of an encoder-decoder is served, the screen says what gives it."""
    page = await tab.open("#/translate?model=transformer&source=the+cat&beams=3&run=1")
    await tab.until_done()
    await expect(page.get_by_text("--task attention")).to_be_visible()
    body = {
        "model": "transformer",
        "text": "the cat",
        "sampling_params": {"temperature": 0, "beam_width": 3, "n": 3},
    }
    results = (await tab.call("api/GenerateUnary", body))["results"]
    await page.get_by_role("tab", name="Beam search").click()
    rows = (
        await page.get_by_role("region", name="Outputs of the beam search")
        .locator("tbody tr")
        .all()
    )
    shown = [await row.locator("td, th").all_inner_texts() for row in rows]
    assert [row[1] for row in shown] == [
        f"{each['score']:.3f}".replace("-", "\N{MINUS SIGN}") for each in results
    ]
    assert [row[2] for row in shown] == [str(len(each["token_ids"])) for each in results]


async def test_a_mask_stands_where_the_token_does_behind_an_astral_character(tab: Opened) -> None:
    """Offsets count code points, of which the emoji is one, and JavaScript's strings have two."""
    asked: list[str] = []

    def keep(request: Request) -> None:
        if request.url.endswith("/Attend"):
            asked.append(json.loads(request.post_data or "")["text"])

    tab.page.on("request", keep)
    page = await tab.open("#/attention?model=encoder-attention&text=\U0001f600+free+lunch&run=1")
    await tab.until_done()
    await query(page, 2).focus()
    await page.keyboard.press("m")
    await expect(page.get_by_label("Change by the mask")).to_contain_text("free is left out")
    assert asked[-1] == "\U0001f600  lunch"
