"""Links to screens, and what a page shows: tables and percentages as the page writes them."""

from urllib.parse import quote

from playwright.async_api import Locator


def link(screen: str, model: str, **values: str) -> str:
    fields = "&".join(f"{name}={quote(value)}" for name, value in values.items())
    return f"#/{screen}?model={model}&{fields}"


def percent(value: float) -> str:
    digits = 0 if value >= 0.9995 else 1 if value >= 0.1 else 2
    return "<0.01 %" if value < 0.0001 else f"{100 * value:.{digits}f} %"


async def rows(table: Locator) -> list[list[str]]:
    """The texts of the body's cells."""
    found: list[list[str]] = await table.evaluate(
        "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return found
