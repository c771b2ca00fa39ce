"""The screen of similarity: texts, pairs, words by analogy, a word in several sentences."""

import math
import re

import pytest
from playwright.async_api import Page, expect

from tests.playground.browsers import Opened
from tests.playground.test_accessibility import TAGS, violations

pytestmark = pytest.mark.asyncio(loop_scope="module")
MINUS = "\N{MINUS SIGN}"
LINES = ["win a prize", "sorry the cash now later", "free lunch"]


async def filled(tab: Opened, model: str, lines: list[str]) -> Page:
    page = await tab.open(f"#/similarity?model={model}")
    await page.get_by_label("Texts, one a line").fill("\n".join(lines))
    await tab.run()
    return page


async def table_of(page: Page, place: int = 0) -> list[list[str]]:
    """The cells of a picture's table, without its first row."""
    await page.get_by_text("As a table").locator("visible=true").nth(place).click()
    rows = page.locator("figure:visible").nth(place).locator("tbody tr")
    await expect(rows.first).to_be_visible()
    return [await row.locator("td").all_inner_texts() for row in await rows.all()]


def cosine(one: list[float], other: list[float]) -> float:
    return (
        sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)
    )


async def test_the_heat_map_has_the_servers_cosines(tab: Opened) -> None:
    page = await filled(tab, "mini", LINES)
    answer = await tab.call("api/Similarity", {"model": "mini", "texts": LINES})
    expected = [[f"{value:.3f}" for value in row["values"]] for row in answer["rows"]]
    shown = [row[1:] for row in await table_of(page)]
    assert [[value.replace(MINUS, "-") for value in row] for row in shown] == expected


async def test_a_line_beyond_the_texts_is_the_nearest_that_there_is(tab: Opened) -> None:
    page = await filled(tab, "mini", LINES)
    line = page.get_by_role("spinbutton", name="Compare with line")
    await page.get_by_role("tab", name="Ranking").click()
    for value, index in (("-3", 0), ("0", 0), ("1.6", 1), ("99", 2)):
        await line.fill(value)
        await tab.run()
        panel = page.get_by_role("tabpanel").locator("visible=true")
        await expect(panel).to_contain_text(f"Likest to {LINES[index]}")


async def test_a_heat_map_shows_marks_of_direction(tab: Opened) -> None:
    page = await filled(tab, "mini", ["free \u202elunch", "win"])
    await page.evaluate(
        "document.querySelector('figure canvas').dispatchEvent("
        "new KeyboardEvent('keydown', {key: 'ArrowDown'}))"
    )
    await expect(page.get_by_text("1 free [RLO]lunch → 1:")).to_be_visible()


async def test_dot_products_order_and_ranking_follow_the_controls_without_another_call(
    tab: Opened,
) -> None:
    page = await filled(tab, "mini", LINES)
    calls: list[str] = []
    page.on("request", lambda request: calls.append(request.url))
    await page.get_by_role("radio", name="Dot product").click()
    answer = await tab.call(
        "api/Similarity",
        {"model": "mini", "texts": LINES, "measure": "SIMILARITY_MEASURE_DOT"},
    )
    shown = [row[1:] for row in await table_of(page)]
    expected = [[f"{value:.3f}" for value in row["values"]] for row in answer["rows"]]
    assert [[value.replace(MINUS, "-") for value in row] for row in shown] == expected
    await page.get_by_role("tab", name="Ranking").click()
    await page.get_by_label("Compare with line").fill("2")
    names = page.get_by_role("tabpanel").locator(".bars .label")
    products = answer["rows"][1]["values"]
    order = sorted((0, 2), key=lambda index: -products[index])
    await expect(names).to_have_text([LINES[index] for index in order])
    await page.get_by_label("Put like texts side by side").check()
    await expect(page.get_by_role("tab", name="Ranking")).to_have_attribute("aria-selected", "true")
    assert not any("api/Embed" in url for url in calls)


async def test_a_row_of_the_heat_map_is_chosen_by_keys(tab: Opened) -> None:
    page = await filled(tab, "mini", LINES)
    canvas = page.get_by_role("img", name="How alike the texts are")
    await canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
        await page.keyboard.press(key)
    await expect(page.get_by_label("Compare with line")).to_have_value("3")
    await expect(page.get_by_text("The likest to line 3")).to_be_visible()


async def test_map_and_vector_show_what_embed_gives(tab: Opened) -> None:
    page = await filled(tab, "mini", LINES)
    vectors = [
        each["values"]
        for each in (await tab.call("api/Embed", {"model": "mini", "texts": LINES}))["results"]
    ]
    await page.get_by_role("tab", name="Vector", exact=True).click()
    shown = [row[1].replace(MINUS, "-") for row in await table_of(page)]
    assert shown == [f"{value:.5f}" for value in vectors[0]]
    await expect(page.get_by_text(f"length {math.hypot(*vectors[0]):.3f}")).to_be_visible()
    await page.get_by_role("tab", name="Map", exact=True).click()
    await expect(page.get_by_text("of the variance")).to_be_visible()
    await expect(page.get_by_role("img", name="Map of the vectors")).to_be_visible()


async def test_a_permalink_gives_the_same_after_a_reload(tab: Opened) -> None:
    page = await filled(tab, "mini", LINES)
    await page.get_by_label("Compare with line").fill("3")
    await expect(page).to_have_url(re.compile("line=3"))
    await page.reload()
    await tab.until_done()
    await expect(page.get_by_label("Compare with line")).to_have_value("3")
    await expect(page.get_by_text("The likest to line 3")).to_be_visible()


async def test_pairs_are_scored_each_with_each(tab: Opened) -> None:
    page = await filled(tab, "match", LINES[:2])
    answer = await tab.call(
        "api/ScorePairs",
        {
            "model": "match",
            "texts": [LINES[0], LINES[0], LINES[1], LINES[1]],
            "text_pairs": LINES[:2] * 2,
        },
    )
    scores = [result["score"] for result in answer["results"]]
    shown = [row[1:] for row in await table_of(page)]
    flat = [float(value.removesuffix(" %")) / 100 for row in shown for value in row]
    assert flat == pytest.approx(scores, abs=5e-4)
    await expect(page.get_by_role("tab")).to_have_text(["Heat map", "Ranking"])


async def test_words_nearest_to_a_sum_are_those_of_the_whole_vocabulary(tab: Opened) -> None:
    """Of win - prize + cash: the sums of the server's cosines, without the words given.

    The server takes 5 texts in a request, so that it is asked several times.
    """
    page = await tab.open("#/similarity?model=words&mode=analogy&a=win&b=prize&c=Cash&run=1")
    await tab.until_done()
    words = ["win", "prize", "free", "cash", "lunch", "home", "later", "sorry", "now", "the", "a"]
    rows: list[list[float]] = [[], [], []]
    for at in range(0, len(words), 2):
        answer = await tab.call(
            "api/Similarity",
            {"model": "words", "texts": ["win", "prize", "cash"], "others": words[at : at + 2]},
        )
        for row, part in zip(rows, answer["rows"], strict=True):
            row += part["values"]
    sums = {word: rows[0][at] - rows[1][at] + rows[2][at] for at, word in enumerate(words)}
    nearest = sorted(
        (w for w in words if w not in ("win", "prize", "cash")), key=lambda w: -sums[w]
    )
    shown = await page.locator(".bars .label").all_inner_texts()
    assert shown == nearest
    await expect(
        page.get_by_role("heading", name=f"Nearest to win {MINUS} prize + cash")
    ).to_be_visible()
    await page.get_by_label("Minus").fill("cattle")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_text("“cattle” is not among the 11 words")).to_be_visible()
    await expect(page.get_by_label("Minus")).to_be_focused()


async def test_a_line_that_stands_again_is_said_to_be_the_same(tab: Opened) -> None:
    page = await filled(tab, "match", [*LINES, LINES[0]])
    await expect(
        page.get_by_text("Line 1 stands again as line 4. The likest other")
    ).to_be_visible()
    await page.get_by_role("tab", name="Ranking").click()
    ranked = page.get_by_role("tabpanel").locator(".bars li").filter(has_text=LINES[0])
    await expect(ranked).to_contain_text("same text, ")


async def test_a_word_in_several_sentences_is_compared_layer_by_layer(tab: Opened) -> None:
    """Of sentences with the word at other places; the first has an astral character before it."""
    lines = ["\U0001f600 now win", "win the prize", "sorry, Win"]
    page = await tab.open("#/similarity?model=deep&word=win")
    await page.get_by_label("Texts, one a line").fill("\n".join(lines))
    await tab.run()
    vectors = []
    for layer in range(5):
        answer = await tab.call(
            "api/ExtractFeatures",
            {
                "model": "deep",
                "texts": lines,
                "layers": "LAYERS_MIX",
                "pooling": "POOLING_NONE",
                "weights": [float(index == layer) for index in range(5)],
            },
        )
        of_texts = []
        for line, result in zip(lines, answer["results"], strict=True):
            place = line.lower().index("win")
            (at,) = (
                index
                for index, token in enumerate(result["tokens"])
                if token.get("start", 0) == place and token.get("end", 0) == place + 3
            )
            of_texts.append(result["vectors"][at]["values"])
        vectors.append(of_texts)
    shown = [row[1:] for row in await table_of(page, 1)]
    expected = [[cosine(layer[0], layer[row]) for layer in vectors] for row in range(3)]
    assert [[float(value.replace(MINUS, "-")) for value in row] for row in shown] == [
        pytest.approx(row, abs=6e-4) for row in expected
    ]
    await page.get_by_label("Word that all lines have").fill("cash")
    await page.keyboard.press("Control+Enter")
    await expect(page.get_by_text("Line 1 does not have the word “cash”.")).to_be_visible()


async def test_no_view_breaks_a_rule_of_axe(tab: Opened) -> None:
    page = await filled(tab, "mini", LINES)
    for view in ("Heat map", "Ranking", "Map", "Vector"):
        await page.get_by_role("tab", name=view, exact=True).click()
        assert await violations(page, TAGS) == [], view


async def test_typed_vectors_have_the_three_measures_of_the_lecture(tab: Opened) -> None:
    """Of cherry and orange 12, 0.97 and 8.49; of cherry and phone 3, 0.24, 2.12; then 0."""
    typed = "cherry: 1, 4%0Aorange: 0, 3%0Aphone: 3, 0"
    page = await tab.open(f"#/similarity?model=mini&mode=vectors&texts={typed}")
    await tab.run()
    for name, expected in (
        ("Dot product", [12, 3, 0]),
        ("Cosine", [0.97, 0.24, 0]),
        ("Scaled", [8.49, 2.12, 0]),
    ):
        await page.get_by_role("radio", name=name, exact=True).click()
        cells = await table_of(page)
        shown = [float(cells[0][2]), float(cells[0][3]), float(cells[1][3])]
        assert shown == pytest.approx(expected, abs=0.0055), name
    await page.get_by_label("Vectors, one a line").fill("cherry: 1, 4\nphone: 3")
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_text("Line 2 is no vector of 2 numbers.")).to_be_visible()
