"""The screen that generates text with two models, of which one has a chat template."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.fakes.chats import rendered, write_chat_model
from tests.fakes.serving import Served, serving, write_models
from tests.fakes.sessions import greedy_text
from tests.playground.browsers import Opened

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def chatting(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_models(repository)
    write_chat_model(repository)
    write_chat_model(repository, "tuned", sampling=OWN)
    async with serving(repository, **settings) as served:
        yield served


SERVE = chatting
OWN = {"temperature": 0.35, "top_p": 0.9}
OWN_WORDS = "The model's own settings: temperature 0.35, top-p 0.9."


async def test_a_chat_goes_on_from_what_the_template_makes_of_its_messages(tab: Opened) -> None:
    page = await tab.open("#/generate?model=talks&mode=chat&text=hi&temperature=0&max_tokens=4")
    output, run = page.locator(".document .output"), page.locator("button.primary")
    done = expect(page.locator("section[aria-busy]"))
    await run.click()
    await done.to_have_attribute("aria-busy", "false")
    first = greedy_text(rendered(("user", "hi")), 4)
    await expect(output).to_have_text(first)
    await page.get_by_role("button", name="Next message").click()
    messages = page.get_by_role("list", name="Messages").get_by_role("listitem")
    await expect(messages).to_have_text(["Youhi", f"Model{first}"])
    await page.get_by_role("textbox", name="Message", exact=True).press_sequentially("yo")
    await page.keyboard.press("Control+Enter")
    await done.to_have_attribute("aria-busy", "false")
    prompt = rendered(("user", "hi"), ("assistant", first), ("user", "yo"))
    second = greedy_text(prompt, 4)
    await expect(output).to_have_text(second)
    await page.get_by_text("Rendered prompt").click()
    await expect(page.get_by_label("Rendered prompt")).to_have_text(prompt)
    await expect(run).to_have_text("Continue")
    await run.click()
    await expect(output).to_have_text(greedy_text(prompt, 8))


async def test_a_permalink_of_a_chat_shows_its_system_message(tab: Opened) -> None:
    page = await tab.open("#/generate?model=talks&mode=chat&system=Be kind&text=hi")
    await expect(page.get_by_role("textbox", name="System message")).to_have_value("Be kind")
    await page.get_by_role("radio", name="Text").check(force=True)
    await expect(page.get_by_role("textbox", name="System message")).to_be_hidden()


async def test_models_without_a_template_have_no_chat(tab: Opened) -> None:
    page = await tab.open("#/generate?model=tale&mode=chat&text=hi")
    await expect(page.get_by_role("textbox", name="Prompt")).to_have_text("hi")
    await expect(page.get_by_role("radio", name="Chat")).to_be_hidden()
    await expect(page.get_by_role("link", name=re.compile("Generate"))).to_be_visible()


async def test_two_models_go_on_from_one_text_side_by_side(tab: Opened) -> None:
    path = "model=tale&compare=true&other_model=talks&temperature=0&max_tokens=4&text=hi&run=1"
    page = await tab.open(f"#/generate?{path}")
    await expect(page.locator("section[aria-busy]")).to_have_attribute("aria-busy", "false")
    lanes = page.locator(".lanes > section")
    await expect(lanes.get_by_role("heading")).to_have_text(["tale", "talks"])
    for index in range(2):
        await expect(lanes.nth(index).get_by_role("group")).to_have_text(greedy_text("hi", 4))
    await expect(page.locator(".differs")).to_have_count(0)
    await lanes.nth(1).get_by_role("button", name="Keep this").click()
    await page.get_by_label("Compare with").uncheck()
    await page.get_by_role("button", name="Continue", exact=True).click()
    await expect(page.locator(".document .output")).to_have_text(greedy_text("hi", 8))


async def test_settings_begin_at_the_models_own_until_one_is_changed(tab: Opened) -> None:
    page = await tab.open("#/generate?model=tuned&text=hi")
    settings = page.get_by_role("region", name="Settings")
    temperature, top_p = (settings.get_by_label(name).first for name in ("Temperature", "Top-p"))
    model = page.get_by_role("combobox", name="Model", exact=True)
    await expect(settings.get_by_text(OWN_WORDS)).to_be_visible()
    await expect(temperature).to_have_value("0.35")
    await expect(top_p).to_have_value("0.9")
    await model.select_option("talks")
    await expect(settings.get_by_text("own settings")).to_be_hidden()
    await expect(temperature).to_have_value("0.8")
    await expect(top_p).to_have_value("1")
    await temperature.fill("0.5")
    await model.select_option("tuned")
    await expect(temperature).to_have_value("0.5")
    await settings.get_by_role("button", name="Use them").click()
    await expect(temperature).to_have_value("0.35")
    await expect(top_p).to_have_value("0.9")


async def test_a_permalink_goes_before_the_models_own_settings(tab: Opened) -> None:
    page = await tab.open("#/generate?model=tuned&text=hi&temperature=0.8")
    temperature = page.get_by_role("region", name="Settings").get_by_label("Temperature").first
    await expect(temperature).to_have_value("0.8")
