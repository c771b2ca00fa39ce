"""The screens of masks, entities, answers, classes and tokens, with small models that are saved."""

import math
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from playwright.async_api import Locator, expect

from tests.e2e.conftest import ROOT
from tests.e2e.server import ServerProcess
from tests.playground.browsers import Opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

MASKS, TAGS, ASKS, CLASSES, BYTES = (
    "encoder-masked-words",  # whose mask is spelled "free"
    "encoder-token-classifier",
    "encoder-answerer",
    "encoder-classifier",
    "gpt",  # whose tokens are bytes
)
SMILE = "\N{GRINNING FACE}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    models = ",".join((MASKS, TAGS, ASKS, CLASSES, BYTES))
    flags = "--model-control-mode", "explicit", "--load-models", models, "--http-port", "0"
    with ServerProcess(ROOT / "tests" / "saved" / "repository", *flags) as process:
        yield f"http://{process.http_address}/"


def link(screen: str, model: str, **values: str) -> str:
    fields = "&".join(f"{name}={quote(value)}" for name, value in values.items())
    return f"#/{screen}?model={model}&{fields}"


def percent(value: float) -> str:
    digits = 0 if value >= 0.9995 else 1 if value >= 0.1 else 2
    return "<0.01 %" if value < 0.0001 else f"{100 * value:.{digits}f} %"


async def rows(table: Locator) -> list[list[str]]:
    found: list[list[str]] = await table.evaluate(
        "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return found


async def fills(tab: Opened, text: str, **choice: Any) -> list[dict[str, Any]]:
    body = {"model": MASKS, "texts": [text], **choice}
    (result,) = (await tab.call("api/FillMask", body))["results"]
    found: list[dict[str, Any]] = result["masks"][0]["fills"]
    return found


async def test_two_prompts_have_the_log_probabilities_of_the_api(tab: Opened) -> None:
    """The lecture's prompts are the first example; both are asked about the words of either."""
    page = await tab.open(f"#/fill-mask?model={MASKS}&top_k=4")
    texts = [await page.get_by_label(name).input_value() for name in ("First", "Second prompt")]
    assert texts == [f"In {place}, they like to buy free." for place in ("Texas", "New York")]
    await tab.run()
    likeliest = [await fills(tab, text, top_k=4) for text in texts]
    words = {fill["token"] for each in likeliest for fill in each} - {""}  # ids without a spelling
    first, second = [
        {each["token"]: each["logprob"] for each in await fills(tab, text, candidates=[*words])}
        for text in texts
    ]
    shown = await rows(page.locator("table.paired"))
    assert [row[1] for row in shown] == sorted(words, key=lambda word: -first[word])
    for left, word, right, ratio in shown:
        assert (left, right) == (percent(math.exp(first[word])), percent(math.exp(second[word])))
        assert float(ratio.replace("\N{MINUS SIGN}", "-")) == pytest.approx(
            first[word] - second[word], abs=0.006
        )
    picture = page.get_by_role("img", name="Log probability of each word under both prompts")
    assert await picture.bounding_box()
    await picture.focus()
    await page.keyboard.press("ArrowRight")
    least = min(words, key=lambda word: first[word])
    await expect(page.get_by_role("tooltip")).to_contain_text(least)
    await page.get_by_role("radio", name="Difference").click()
    ordered = [row[1] for row in await rows(page.locator("table.paired"))]
    assert ordered[0] == max(words, key=lambda word: abs(first[word] - second[word]))


async def test_a_word_is_put_into_the_prompts_and_taken_out_again(tab: Opened) -> None:
    page = await tab.open(link("fill-mask", MASKS, first="win free", second="the free now"))
    await tab.run()
    word = page.locator("table.paired tbody button").first
    token = await word.inner_text()
    await word.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("First prompt")).to_have_value(f"win {token}")
    await expect(page.get_by_label("Second prompt")).to_have_value(f"the {token} now")
    await page.get_by_role("button", name="Take the word out").click()
    await expect(page.get_by_label("First prompt")).to_have_value("win free")
    await expect(page.locator("table.paired")).to_be_visible()


async def test_each_of_several_masks_is_shown_and_the_link_keeps_which(tab: Opened) -> None:
    text = "free the free"
    page = await tab.open(link("fill-mask", MASKS, first=text, candidates="cash, lunch, home"))
    await tab.run()
    await page.get_by_label("Mask", exact=True).select_option("2")
    body = {"model": MASKS, "texts": [text], "candidates": ["cash", "lunch", "home"]}
    (result,) = (await tab.call("api/FillMask", body))["results"]
    scores = [percent(fill["score"]) for fill in result["masks"][1]["fills"]]
    values = page.get_by_role("list", name="Fills").locator(".value")
    await expect(values).to_have_text(scores)
    await page.wait_for_url(re.compile("mask=1"))
    await tab.open(page.url.removeprefix(tab.url))
    await expect(values).to_have_text(scores)


async def test_prompts_are_swapped(tab: Opened) -> None:
    page = await tab.open(link("fill-mask", MASKS, first="win free", second="the free"))
    await tab.run()
    table = page.locator("table.paired")
    before = {row[1]: (row[0], row[2]) for row in await rows(table)}
    await page.get_by_role("button", name="Swap prompts").click()
    await expect(page.get_by_label("First prompt")).to_have_value("the free")
    await tab.until_done()
    after = {row[1]: (row[2], row[0]) for row in await rows(table)}
    assert after == before


async def test_an_error_is_shown_at_the_prompt_that_it_is_about(tab: Opened) -> None:
    page = await tab.open(link("fill-mask", MASKS, first="win free", second="the prize"))
    await page.get_by_label("First prompt").press("Control+Enter")
    field = page.locator(".field.wrong")
    await expect(field).to_contain_text("text 1 has 0 free, expected 1 to 16")
    await expect(field.get_by_label("Second prompt")).to_be_focused()
    tab.complaints.clear()  # the browser's line about the status 400


async def test_words_that_are_no_token_are_named_and_the_others_compared(tab: Opened) -> None:
    given = link("fill-mask", MASKS, first="win free", candidates="cash, oil, cash now, lunch")
    page = await tab.open(given)
    await tab.run()
    await expect(page.locator("section .notice")).to_have_text(
        [
            "“oil” is not in the vocabulary.",
            "“cash now” is 2 pieces (cash now), and a mask takes one.",
        ]
    )
    expected = await fills(tab, "win free", candidates=["cash", "lunch"])
    labels = page.get_by_role("list", name="Fills").locator(".label")
    assert await labels.all_inner_texts() == [each["token"] for each in expected]


async def test_templates_and_words_make_a_table(tab: Opened) -> None:
    values = {"templates": "the {} free\nfree {}", "words": "lunch, cash", "targets": "home, now"}
    page = await tab.open(link("fill-mask", MASKS, mode="many", **values))
    await tab.run()
    texts = ["the lunch free", "the cash free", "free lunch", "free cash"]
    shown = await rows(page.get_by_role("table"))
    assert [row[0] for row in shown] == texts
    for text, row in zip(texts, shown, strict=True):
        expected = {
            each["token"]: each["score"]
            for each in await fills(tab, text, candidates=["home", "now"])
        }
        assert row[2:] == [percent(expected["home"]), percent(expected["now"])]
    url = page.url
    assert "run=1" in url
    await tab.open(url.removeprefix(tab.url))
    await expect(page.get_by_role("table")).to_be_visible()
    assert await rows(page.get_by_role("table")) == shown, "the link gives the same"


async def test_entities_are_marked_from_the_first_character_and_behind_astral_ones(
    tab: Opened,
) -> None:
    text = f"now {SMILE} now"
    page = await tab.open(link("entities", TAGS, text=text))
    await tab.run()
    answer = await tab.call("api/ClassifyTokens", {"model": TAGS, "texts": [text]})
    entities = answer["results"][0]["entities"]
    assert [(each["start"], each["end"]) for each in entities] == [(0, 3), (6, 9)]
    shown = [
        [each["text"], each["label"], percent(each["score"]), str(each["start"]), str(each["end"])]
        for each in entities
    ]
    assert await rows(page.get_by_role("table")) == shown
    reading = page.locator(".reading")
    assert (await reading.inner_text()).replace("\n", "") == f"nowx {SMILE} nowx"
    least = page.get_by_role("spinbutton", name="Least score")
    await least.fill(str(max(each["score"] for each in entities) - 0.001))
    await expect(reading.locator("mark")).to_have_count(1)
    await least.fill("0")
    key = page.get_by_role("group", name="Labels").get_by_role("button")
    await key.press("Enter")
    await expect(reading.locator("mark")).to_have_count(0)
    await expect(key).to_be_focused()
    await expect(key).to_have_attribute("aria-pressed", "false")
    await page.get_by_label("Join").select_option("NESTED")
    await tab.until_done()
    await key.press("Enter")
    await expect(reading.locator("mark mark")).to_have_count(0)  # a token that is an entity is one


async def test_markup_and_marks_of_direction_stay_text(tab: Opened) -> None:
    page = await tab.open(link("entities", TAGS, text="<b>now\N{RIGHT-TO-LEFT OVERRIDE}"))
    await tab.run()
    await expect(page.locator(".reading b")).to_have_count(0)
    await expect(page.locator(".reading")).to_contain_text("<b")
    await expect(page.locator(".reading")).to_contain_text("[RLO]")


async def test_an_answer_is_marked_with_the_next_best_and_no_answer(tab: Opened) -> None:
    context = f"{SMILE} now cash"
    page = await tab.open(link("answers", ASKS, text="win", context=context))
    await tab.run()
    body = {"model": ASKS, "question": "win", "context": context, "top_k": 5}
    answer = await tab.call("api/Answer", {**body, "max_answer_tokens": 12, "must_answer": True})
    best, *others = answer["answers"]
    bars = page.get_by_role("list", name="Answers")
    scores = [best["score"], *(each["score"] for each in others), answer["no_answer_score"]]
    assert await bars.locator(".value").all_inner_texts() == list(map(percent, scores))
    verdict = page.locator(".large")
    await expect(verdict).to_have_text(
        re.compile(re.escape(f"{best['text']} {percent(scores[0])}"))
    )
    await expect(page.locator("mark.on")).to_have_text(best["text"])
    await bars.get_by_role("button").first.focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(page.locator("mark.on")).to_have_text(SMILE)
    await page.get_by_role("spinbutton", name="No answer").fill("0.01")
    await expect(verdict).to_contain_text("No answer.")


async def test_a_long_context_shows_the_windows_it_was_read_in(tab: Opened) -> None:
    context = "win cash now free prize lunch later sorry the cash now free cash lunch"
    page = await tab.open(link("answers", ASKS, text="win", context=context))
    await tab.run()
    answer = await tab.call("api/Answer", {"model": ASKS, "question": "win", "context": context})
    names = [
        f"Window {index}: characters {each['start']} to {each['end']}"
        for index, each in enumerate(answer["windows"], 1)
    ]
    assert len(names) > 1
    shown = await page.locator(".windows li").evaluate_all("all => all.map(each => each.ariaLabel)")
    assert shown == names


async def test_each_word_is_left_out_of_a_text_that_is_classified(tab: Opened) -> None:
    words = ["win", SMILE, "cash", "later"]
    page = await tab.open(link("classify", CLASSES, text=" ".join(words)))
    await tab.run()
    others = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
    body = {"model": CLASSES, "texts": [" ".join(words), *others], "all_scores": True}
    whole, *without = [
        {each["label"]: each["score"] for each in result["labels"]}
        for result in (await tab.call("api/Classify", body))["results"]
    ]
    label = max(whole, key=lambda name: whole[name])
    bars = page.get_by_role("list", name="Labels")
    assert await bars.locator(".value").all_inner_texts() == [
        percent(score) for score in sorted(whole.values(), reverse=True)
    ]
    tokens = page.get_by_role("group", name="Words for and against").locator(".token")
    assert await tokens.all_inner_texts() == words
    await tokens.first.focus()
    for place, scores in enumerate(without):
        await expect(tokens.nth(place)).to_be_focused()
        tip = f"Without “{words[place]}”: {percent(scores[label])} {label}"
        await expect(page.get_by_role("tooltip")).to_contain_text(tip)
        await page.keyboard.press("ArrowRight")
    await bars.get_by_role("button").nth(1).click()
    await expect(page.locator("main h2")).not_to_contain_text(label)


async def test_pasted_rows_are_classified_as_a_table(tab: Opened) -> None:
    page = await tab.open(link("classify", CLASSES, mode="many"))
    await page.get_by_label("Texts").fill('id,text\n1,"win, cash"\n2,lunch later')
    await page.keyboard.press("Control+Enter")
    await tab.until_done()
    body = {"model": CLASSES, "texts": ["win, cash", "lunch later"], "all_scores": True}
    results = (await tab.call("api/Classify", body))["results"]
    best = [[each["labels"][0]["label"], each["labels"][0]["score"]] for each in results]
    shown = await rows(page.get_by_role("table"))
    assert [row[:2] for row in shown] == [["win, cash", best[0][0]], ["lunch later", best[1][0]]]
    assert percent(best[0][1]) in shown[0]


async def test_tokens_come_as_they_are_typed_with_bytes_and_offsets(tab: Opened) -> None:
    page = await tab.open(link("tokenizer", BYTES, text="", other=CLASSES, ids="8 12"))
    text = f"win {SMILE}"
    await page.get_by_label("Text", exact=True).fill(text)
    ours, beside = page.get_by_label(BYTES, exact=True), page.get_by_label(CLASSES, exact=True)
    tokens = (await tab.call("api/Tokenize", {"model": BYTES, "texts": [text]}))["results"][0][
        "tokens"
    ]
    await expect(ours.locator(".token")).to_have_count(len(tokens))
    await expect(ours).to_contain_text(f"{len(tokens)} tokens of at most 40, 5 characters")
    await expect(ours).to_contain_text("✓ The tokens give the same text again.")
    await expect(beside).to_contain_text("1 token stands for words that the vocabulary lacks")
    await expect(beside).to_contain_text("Text of the ids: lunch now")
    await beside.get_by_text("All tokens").click()
    assert await rows(beside.get_by_role("table")) == [
        ["0", "2", "[CLS]", "[CLS]", "", "0", "0"],
        ["1", "4", "win", "win", "77 69 6E", "0", "3"],
        ["2", "1", "[UNK]", SMILE, "F0 9F 98 80", "4", "5"],
        ["3", "3", "[SEP]", "[SEP]", "", "0", "0"],
    ]
    await page.get_by_label("Special tokens").uncheck()
    await expect(beside.locator(".token")).to_have_count(2)
    await ours.locator(".token").first.focus()
    await page.keyboard.press("End")
    await expect(page.get_by_role("tooltip")).to_contain_text(f"id {tokens[-1]['id']}")
    await expect(page.get_by_role("tooltip")).to_contain_text("characters 4 to 5\nbytes 80")
    await page.get_by_label("Token ids to text").fill("8 200")
    await expect(beside).to_contain_text("token_ids has 200, which the vocabulary lacks")
    await expect(ours).to_contain_text("Text of the ids: (")
    tab.complaints.clear()  # the browser's line about the status 400
    await page.get_by_label("Token ids to text").fill("8 x")
    await expect(page.get_by_role("alert")).to_have_text(re.compile("^Whole numbers"))


LINKS = {
    "entities": link("entities", TAGS, text="now the now", aggregation="NONE", least="0.4"),
    "answers": link("answers", ASKS, text="win", context="now cash", top_k="2", threshold="0.9"),
    "classify": link("classify", CLASSES, text="win cash now", label="ham"),
    "texts": link("classify", CLASSES, mode="many", texts="win cash\nlunch"),
    "tokenizer": link("tokenizer", BYTES, text="win cash", other=CLASSES, ids="4 5"),
}


@pytest.mark.parametrize("name", LINKS)
async def test_a_link_gives_the_same_result_again(tab: Opened, name: str) -> None:
    page = await tab.open(LINKS[name])
    await tab.run()
    result = page.get_by_role("region", name="Result")
    shown = await result.inner_text()
    assert shown
    await page.wait_for_url(re.compile("run=1"))
    await tab.open(page.url.removeprefix(tab.url))
    await expect(page.locator(".run .status")).not_to_have_text("")
    await tab.until_done()
    assert await result.inner_text() == shown
