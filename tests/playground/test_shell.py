"""What all screens have in common, in a real browser."""

import pytest
from playwright.async_api import expect

from tests.playground.browsers import Opened

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_page_opens_with_every_screen_in_its_navigation(tab: Opened) -> None:
    page = await tab.open("#/models")
    await expect(page.get_by_role("navigation", name="Screens").get_by_role("link")).to_have_count(
        14
    )
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
