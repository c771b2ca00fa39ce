"""The screen of images: the pad, what the model sees, labels, attention, a table of several."""

import asyncio
import base64
import io
import re
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.async_api import Page, Request, expect

from tests.fakes.tasks import file_of
from tests.playground.browsers import Opened
from tests.playground.test_accessibility import TAGS, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = {"max_texts": 64, "max_image_bytes": 100_000}
SHADES = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4


def sent(page: Page) -> list[dict[str, Any]]:
    """The bodies of calls about images from now on."""
    bodies: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if "Image" in request.url:
            body = request.post_data_json
            assert body is not None
            bodies.append(body)

    page.on("request", note)
    return bodies


def pixels_of(image: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(image))).convert("L"))


async def draw(page: Page, *points: tuple[float, float]) -> None:
    """One stroke, by shares of the pad."""
    box = await page.get_by_label("Drawing pad").bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    await page.mouse.move(*places[0])
    await page.mouse.down()
    for place in places[1:]:
        await page.mouse.move(*place, steps=5)
    await page.mouse.up()


async def labels_shown(page: Page) -> dict[str, str]:
    rows = page.get_by_label("Labels").locator("li")
    await expect(rows.first).to_be_visible()
    return {
        await row.locator(".label").inner_text(): await row.locator(".value").inner_text()
        for row in await rows.all()
    }


async def test_labels_follow_the_drawing_and_are_the_servers(tab: Opened) -> None:
    page = await tab.open("#/images?model=light")
    bodies = sent(page)
    await draw(page, (0.5, 0.2), (0.5, 0.8))
    await tab.rest()
    answer = await tab.call("api/ClassifyImage", bodies[-1])
    expected = {
        each["label"]: f"{100 * each['score']:.1f} %" for each in answer["results"][0]["labels"]
    }
    assert await labels_shown(page) == expected
    seen = pixels_of(bodies[-1]["images"][0])
    assert seen.shape == (8, 8)
    assert seen[:, 3:5].mean() > 100, "the stroke is light, as tall as the image, in its middle"
    assert seen[:, [0, 7]].max() == 0
    await expect(page.get_by_role("img", name="What the model sees")).to_be_visible()


async def test_a_long_stroke_asks_at_most_ten_times_a_second(tab: Opened) -> None:
    page = await tab.open("#/images?model=light")
    await expect(page.get_by_text("Draw on the pad, or open an image.")).to_be_visible()
    bodies = sent(page)
    started = asyncio.get_running_loop().time()
    await draw(page, *[(0.1 + (index % 10) / 12, 0.1 + index / 50) for index in range(40)])
    await tab.rest()
    took_s = asyncio.get_running_loop().time() - started
    assert 2 <= len(bodies) <= 10 * took_s + 1


async def test_the_pad_is_drawn_on_by_keys_and_undone(tab: Opened) -> None:
    page = await tab.open("#/images?model=light")
    bodies = sent(page)
    pad = page.get_by_label("Drawing pad")
    await pad.focus()
    for key in ("Space", "ArrowDown", "ArrowDown", "ArrowDown", "Space"):
        await page.keyboard.press(key)
    await tab.rest()  # the last run announces a label
    await page.keyboard.press("ArrowRight")
    await expect(page.locator("#announcer")).to_have_text("Column 8, row 10, pen up")
    seen = pixels_of(bodies[-1]["images"][0])
    assert seen[:, 3:5].mean() > 200
    await page.keyboard.press("Backspace")
    await expect(page.get_by_text("Draw on the pad, or open an image.")).to_be_visible()


async def test_a_file_is_sent_as_the_model_takes_it_and_inverted_where_asked(tab: Opened) -> None:
    page = await tab.open("#/images?model=light&fit=false")
    bodies = sent(page)
    file = {"name": "shades.png", "mimeType": "image/png", "buffer": file_of(SHADES)}
    await page.get_by_label("Images to open").set_input_files(file)  # type: ignore[arg-type]
    await labels_shown(page)
    assert (pixels_of(bodies[-1]["images"][0]) == SHADES).all()
    await page.get_by_label("Invert light and dark").check()
    await tab.rest()
    assert (pixels_of(bodies[-1]["images"][0]) == 255 - SHADES).all()


async def test_several_files_are_a_table_and_broken_ones_are_named(tab: Opened) -> None:
    page = await tab.open("#/images?model=light&fit=false")
    files = [
        {"name": f"{name}.png", "mimeType": "image/png", "buffer": file_of(pixels)}
        for name, pixels in (("shades", SHADES), ("dark", SHADES * 0))
    ]
    await page.get_by_label("Images to open").set_input_files(files)  # type: ignore[arg-type]
    cells = page.get_by_role("region", name="Labels of several images").locator("tbody td")
    await expect(cells).to_have_count(10)
    images = [base64.b64encode(file_of(pixels)).decode() for pixels in (SHADES, SHADES * 0)]
    answer = await tab.call(
        "api/ClassifyImage", {"model": "light", "images": images, "all_scores": True}
    )
    shown = await cells.all_inner_texts()
    for row, result in enumerate(answer["results"]):
        best, second = result["labels"][:2]
        assert shown[5 * row + 1 : 5 * row + 5] == [
            best["label"],
            f"{100 * best['score']:.1f} %",
            second["label"],
            f"{100 * second['score']:.1f} %",
        ]
    broken = {"name": "x.png", "mimeType": "image/png", "buffer": b"no image"}
    await page.get_by_label("Images to open").set_input_files(broken)  # type: ignore[arg-type]
    await expect(page.get_by_role("alert").get_by_text("cannot read these files")).to_be_visible()


async def test_attention_over_patches_is_the_servers_by_head_and_patch(tab: Opened) -> None:
    page = await tab.open("#/images?model=seen&view=head&layer=1&head=1")
    await draw(page, (0.3, 0.2), (0.7, 0.8))
    heading = page.get_by_role("heading", name="Attention over patches")
    await expect(heading).to_be_visible()
    await page.locator("section", has=heading).get_by_text("As a table").click()
    weights = page.locator("figure tbody tr td:last-child")
    # The fakes' head 1: half of it on the class token, then ever less.
    await expect(weights).to_have_text(["50.0 %", "25.0 %", "12.5 %", "6.25 %", "6.25 %"])
    await expect(page.get_by_text("The class token looks most at row 1, column 1")).to_be_visible()
    await page.get_by_role("img", name="Attention of the class token").focus()
    for key in ("ArrowRight", "ArrowDown"):
        await page.keyboard.press(key)
        await tab.rest()
    await expect(page.get_by_text("Row 2, column 1 looks most at")).to_be_visible()
    await expect(page).to_have_url(re.compile("patch=3"))
    await page.get_by_role("radio", name="All layers (rollout)").click()
    await expect(page.get_by_label("Head, from 0")).to_be_hidden()


async def test_an_example_of_the_manifest_is_seen_as_it_is_and_is_in_the_link(tab: Opened) -> None:
    """All of its pixels, though they would be scaled if it were fitted."""
    page = await tab.open("#/images?model=light")
    bodies = sent(page)
    await page.get_by_label("Examples").select_option("Image: a blank")
    before = await labels_shown(page)
    assert (pixels_of(bodies[-1]["images"][0]) == 255).all()
    await expect(page).to_have_url(re.compile("image="))
    await page.reload()
    assert await labels_shown(page) == before
    await draw(page, (0.5, 0.2), (0.5, 0.8))
    await expect(page).not_to_have_url(re.compile("image="))


@pytest.mark.parametrize(("width", "drawn"), [("0", 4), ("1000", 60)])
async def test_the_width_of_the_pen_is_within_its_bounds(
    tab: Opened, width: str, drawn: int
) -> None:
    page = await tab.open("#/images?model=light")
    await page.get_by_role("spinbutton", name="Pen width").fill(width)
    await draw(page, (0.5, 0.2), (0.5, 0.8))
    await expect(page).to_have_url(re.compile(rf"drawing=%5B%5B{drawn}%2C"))


async def test_a_permalink_has_the_drawing(tab: Opened) -> None:
    page = await tab.open("#/images?model=light")
    await draw(page, (0.5, 0.2), (0.5, 0.8))
    await expect(page).to_have_url(re.compile("drawing="))  # that is saved when the pen rests
    before = await labels_shown(page)
    await page.reload()
    assert await labels_shown(page) == before


async def test_a_drawing_its_attention_and_the_table_break_no_rule_of_axe(tab: Opened) -> None:
    page = await tab.open("#/images?model=seen&view=head")
    await page.set_viewport_size({"width": 1280, "height": 2000})  # the strip covers nothing
    await draw(page, (0.3, 0.2), (0.7, 0.8))
    await page.get_by_role("button", name="Add to table").click()
    await expect(page.get_by_role("region", name="Labels of several images")).to_be_visible()
    await expect(page.get_by_role("heading", name="Attention over patches")).to_be_visible()
    assert await violations(page, TAGS) == []


async def test_a_click_on_one_of_all_heads_shows_it(tab: Opened) -> None:
    page = await tab.open("#/images?model=seen")
    await draw(page, (0.3, 0.2), (0.7, 0.8))
    await page.get_by_role("img", name="All heads").click(position={"x": 100, "y": 90})
    await expect(page.get_by_role("radio", name="One head")).to_be_checked()
    await expect(page.get_by_label("Layer, from 0")).to_have_value("1")
    await expect(page.get_by_label("Head, from 0")).to_have_value("1")


@pytest.mark.parametrize("way", ["paste", "drop"])
async def test_an_image_is_pasted_or_dropped(tab: Opened, way: str) -> None:
    page = await tab.open("#/images?model=light&fit=false")
    await expect(page.get_by_text("Draw on the pad, or open an image.")).to_be_visible()
    bodies = sent(page)
    give = """([way, content]) => {
        const data = new DataTransfer();
        const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
        data.items.add(new File([bytes], "shades.png", {type: "image/png"}));
        const options = {bubbles: true, cancelable: true, clipboardData: data, dataTransfer: data};
        const event = new (way === "paste" ? ClipboardEvent : DragEvent)(way, options);
        document.querySelector(".pad").dispatchEvent(event);
    }"""
    await page.evaluate(give, [way, base64.b64encode(file_of(SHADES)).decode()])
    await labels_shown(page)
    assert (pixels_of(bodies[-1]["images"][0]) == SHADES).all()
