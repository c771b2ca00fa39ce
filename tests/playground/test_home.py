"""The first screen: three living things, what is being built, and the lectures step by step."""

import json
import re
import time
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from service.observe.building import FILE, file_of
from tests.fakes.every_task import every_task
from tests.playground.browsers import Opened, opened
from tests.playground.test_files import PLAYGROUND, SCREENS

pytestmark = pytest.mark.asyncio(loop_scope="module")
FEW = {"http_port": 0, "model_control_mode": "explicit", "load_models": "spam"}
COURSE = (PLAYGROUND / "parts/course.js").read_text(encoding="utf-8")


async def test_a_sentence_completes_a_word_attends_and_texts_find_each_other(tab: Opened) -> None:
    page = await tab.open()
    await expect(page.get_by_role("heading", level=1, name="Home")).to_be_visible()
    sentence = page.get_by_role("region", name="A sentence that completes")
    await expect(sentence.get_by_role("button", name="Again")).to_be_enabled()
    assert len(await sentence.locator(".tokens").inner_text()) > len("The import statement")
    word = page.get_by_role("region", name="A word that attends")
    await word.locator(".token").nth(2).focus()
    await expect(word.get_by_text("looks most at")).to_be_visible()
    texts = page.get_by_role("region", name="Texts that find each other")
    answer = await tab.call(
        "api/Similarity",
        {"model": "mini", "texts": ["A cat sat on the mat.", "Investors sold their shares."]},
    )
    row = texts.get_by_role("button", name="Investors sold their shares.")
    await expect(row).to_contain_text(f"{answer['rows'][0]['values'][1]:.2f}")
    await row.click()
    await expect(texts.get_by_role("button", name="A cat sat on the mat.")).to_be_visible()


async def test_what_is_built_is_said_at_home_and_on_the_screens_that_wait_for_it(
    browser: Browser, tmp_path: Path
) -> None:
    """41 % of 200 seconds, two minutes left; words attend without any model."""
    async with every_task(tmp_path, **FEW) as served:
        planned = [("gpt", ["gpt"], 200.0), ("dates", ["dates"], 500.0)]
        file = served.app._settings.model_repository / FILE
        file.write_text(file_of(time.time() - 81.5, planned))
        url = f"http://127.0.0.1:{served.app.http_port}/"
        async with opened(browser, url) as tab:
            page = await tab.open()
            line = re.compile(r"gpt is being trained: 4\d %, about 2 minutes left")
            await expect(page.get_by_text(line).first).to_be_visible()
            await expect(page.get_by_text("dates is trained next")).to_be_visible()
            word = page.get_by_role("region", name="A word that attends")
            await expect(word.get_by_text("apple looks most at apple, 40.3 %")).to_be_visible()
            page = await tab.open("#/generate")
            await expect(page.get_by_text(line)).to_be_visible()
            await expect(page.get_by_text("dates is trained next")).to_have_count(0)
            file.unlink()
            await expect(page.get_by_text(line)).to_have_count(0)


async def test_every_step_of_the_course_is_a_screen_with_a_question_and_an_answer() -> None:
    ids = {path.stem.replace("_", "-") for path in SCREENS}
    steps = re.findall(r'^\t\t\["([a-z-]+)[^"]*", "([^"]+)", "([^"]+)"\],$', COURSE, re.MULTILINE)
    assert len(steps) == COURSE.count("\t\t[") == 20
    assert {screen for screen, _, _ in steps} <= ids
    assert all(question.endswith("?") for _, question, _ in steps)
    assert all(answer.endswith((".", ")")) for _, _, answer in steps)


async def test_a_lecture_leads_from_screen_to_screen_with_its_questions(tab: Opened) -> None:
    page = await tab.open()
    await page.get_by_role("button", name="2 Attention").click()
    course = page.get_by_role("complementary", name="Course")
    await expect(course).to_contain_text("Attention, step 1 of 4")
    await expect(page.get_by_role("heading", level=1, name="Inside attention")).to_be_visible()
    await course.get_by_text("Answer", exact=True).click()
    await expect(course.get_by_text("Its cosine with itself is 1")).to_be_visible()
    for _ in range(3):
        await course.get_by_role("button", name="Next", exact=True).click()
    await expect(page.get_by_role("heading", level=1, name="Sequence to sequence")).to_be_visible()
    await expect(course).to_contain_text("step 4 of 4")
    await expect(course.get_by_role("button", name="Next lecture")).to_be_visible()
    await page.get_by_role("link", name="Models", exact=True).click()
    await expect(page.get_by_role("heading", level=1, name="Models")).to_be_visible()
    await expect(course).to_have_count(0)
    await page.go_back()
    await course.get_by_role("button", name="Leave the course").click()
    await expect(course).to_have_count(0)
    assert json.loads(await page.evaluate("JSON.stringify(sessionStorage)")) == {}
