"""Thoughts of a model stand folded above its answer, and are switched and bounded on the page."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.fakes.agents import say_as_it_is
from tests.fakes.chats import PLAIN, rendered, write_chat_model
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import greedy_text
from tests.playground.browsers import Opened, opened
from tests.playground.test_accessibility import RULES, WIDE, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")
# It opens thoughts unless it is told otherwise, as Qwen's does.
THINKS = PLAIN.replace("[a]", "[a]{{ '<think>' if enable_thinking is not false else '' }}")
OPENED, CLOSED = rendered(("user", "hi")) + "<think>", "</think>"
WRITTEN = f"I see é{CLOSED}Yes"
PATH = "#/generate?model=thinks&mode=chat&text=hi&temperature=0"
SCRIPTED = f"{PATH}&form=choice&form_text={WRITTEN}&run=1"


@asynccontextmanager
async def thinking(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_chat_model(repository)
    write_chat_model(repository, "thinks", THINKS, max_tokens=1_024)
    async with serving(repository, **settings) as served:
        yield served


SERVE = thinking


async def finished(tab: Opened) -> None:
    await expect(tab.page.locator("section[aria-busy]")).to_have_attribute("aria-busy", "false")


async def test_thoughts_stand_folded_above_the_answer_and_are_no_part_of_it(
    tab: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_as_it_is(monkeypatch)
    page = await tab.open(SCRIPTED)
    await finished(tab)
    told = page.get_by_text("Thoughts, 16 tokens")
    await expect(told).to_be_visible()
    thoughts = page.get_by_role("group", name="Thoughts")
    await expect(thoughts).to_be_hidden()
    await expect(page.get_by_role("group", name="Output", exact=True)).to_have_text("Yes")
    await told.click()
    await expect(thoughts).to_be_visible()
    assert "".join(await thoughts.all_inner_texts()).replace("\u200a", "") == f"I see é{CLOSED}"
    await page.get_by_role("button", name="Next message").click()
    messages = page.get_by_role("list", name="Messages").get_by_role("listitem")
    await expect(messages).to_have_text(["Youhi", "ModelYes"])


async def test_a_budget_ends_the_thoughts_and_the_answer_goes_on(tab: Opened) -> None:
    page = await tab.open(f"{PATH}&max_tokens=15&max_reasoning_tokens=3&run=1")
    await finished(tab)
    await expect(page.get_by_text(re.compile(r"^Thoughts, 11 tokens$"))).to_be_visible()
    prompt = OPENED + greedy_text(OPENED, 3) + CLOSED
    output = page.get_by_role("group", name="Output", exact=True)
    await expect(output).to_have_text(greedy_text(prompt, 4))
    await page.get_by_role("button", name="Continue", exact=True).click()
    await finished(tab)
    await expect(page.get_by_text("Thoughts, 11 tokens")).to_be_visible()
    await expect(output).to_have_text(greedy_text(prompt, 19))


async def test_thinking_is_switched_off_by_the_variables_of_templates(tab: Opened) -> None:
    page = await tab.open(f"{PATH}&max_tokens=4")
    await page.get_by_role("radiogroup", name="Thinking").get_by_role("radio", name="Off").click()
    async with page.expect_request("**/api/Generate") as sent:
        await page.get_by_role("button", name="Generate", exact=True).click()
    body = json.loads((await sent.value).post_data or "")
    assert json.loads(body["conversation"]["template_variables"])["enable_thinking"] is False
    await finished(tab)
    output = page.get_by_role("group", name="Output", exact=True)
    await expect(output).to_have_text(greedy_text(rendered(("user", "hi")), 4))
    await expect(page.get_by_text(re.compile("^Thoughts, "))).to_have_count(0)


async def test_a_model_without_markers_of_thoughts_has_no_switch(tab: Opened) -> None:
    page = await tab.open("#/generate?model=talks&mode=chat&text=hi")
    await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()
    await expect(page.get_by_role("radiogroup", name="Thinking")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_unfolded_thoughts_break_no_rule_and_fit_a_small_window(
    browser: Browser, address: str, scheme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_as_it_is(monkeypatch)
    async with opened(browser, address, color_scheme=scheme) as tab:
        page = await tab.open(SCRIPTED)
        await finished(tab)
        await page.get_by_text("Thoughts, 16 tokens").click()
        assert await violations(page, RULES[scheme]) == []
        await page.set_viewport_size({"width": 360, "height": 740})
        assert await page.evaluate(WIDE) == []
