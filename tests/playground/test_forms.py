"""The box for the form of an output, on the screen that generates."""

import json

import pytest
from playwright.async_api import expect

from tests.playground.browsers import Opened
from tests.playground.shown import link
from tests.playground.test_chat import chatting

pytest.importorskip("llguidance")
pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVE = chatting
DIGIT = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
STRICT = {**DIGIT, "additionalProperties": False}


async def test_an_output_is_held_to_a_schema_and_judged_until_it_goes_on_freely(
    tab: Opened,
) -> None:
    form = {"form": "json_schema", "form_text": json.dumps(STRICT), "temperature": "0"}
    page = await tab.open(link("generate", "tale", text="once", max_tokens="20", run="1", **form))
    output = page.locator(".document .output .token:not(.cut)")
    verdict = page.get_by_text("The output is JSON, with all keys that the schema requires.")
    await expect(verdict).to_be_visible()
    assert json.loads("".join(await output.all_inner_texts())) in ({"a": 1}, {"a": 2})
    await page.get_by_label("Tokens at most").last.fill("4")
    await page.get_by_role("button", name="Regenerate").click()
    await expect(page.get_by_text("The output is cut before it has its form")).to_be_visible()
    await page.get_by_role("button", name="Continue", exact=True).click()
    await expect(output).to_have_count(8)


async def test_a_form_is_judged_while_it_is_written_and_the_servers_refusal_is_at_its_box(
    tab: Opened,
) -> None:
    page = await tab.open(link("generate", "talks", mode="chat", text="hi"))
    await page.get_by_label("Form of the output").select_option("JSON schema")
    box = page.get_by_role("textbox", name="A JSON schema")
    await expect(box).to_have_value(json.dumps(json.loads(await box.input_value()), indent=2))
    await box.fill('{"type": ')
    await expect(page.get_by_text("This is no JSON")).to_be_visible()
    await box.fill(json.dumps({**DIGIT, "$ref": "http://other.example/"}))
    await expect(box).to_have_attribute("aria-invalid", "false")
    await page.get_by_role("button", name="Generate", exact=True).click()
    await expect(box).to_have_attribute("aria-invalid", "true")
    field = page.locator(".field", has=box)
    await expect(field.get_by_role("alert")).to_contain_text("json_schema cannot be kept to")
    await box.fill(json.dumps({**DIGIT, "not": {"const": 1}}))
    await expect(box).to_have_attribute("aria-invalid", "false")
    await page.get_by_role("button", name="Generate", exact=True).click()
    await expect(field.get_by_role("alert")).to_contain_text("not")
    tab.complaints.clear()  # the browser's line about status 400
