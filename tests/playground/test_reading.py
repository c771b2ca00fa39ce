"""The screens of entities, answers, classes and tokens, with small models that are saved."""

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Route, expect

from tests.playground.browsers import Opened
from tests.playground.real_models import saved
from tests.playground.shown import link, percent, rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

TAGS, ASKS, CLASSES = "encoder-token-classifier", "encoder-answerer", "encoder-classifier"
BYTES = "gpt"  # whose tokens are bytes
SMILE = "\N{GRINNING FACE}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with saved(TAGS, ASKS, CLASSES, BYTES) as process:
        yield f"http://{process.http_address}/"


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


async def test_several_texts_that_are_none_are_said(tab: Opened) -> None:
    page = await tab.open(link("classify", CLASSES, mode="many"))
    await page.get_by_label("Texts, one a line").fill(" ")
    await page.locator("button.primary").first.click()
    await expect(page.get_by_text("Give a text.")).to_be_visible()


async def test_the_tokenizer_has_no_models_of_symbols(tab: Opened) -> None:
    async def with_symbols(route: Route) -> None:
        listed = await (await route.fetch()).json()
        for model in listed["models"]:
            model["symbols"] = ["s0", "s1"] if model["name"] == CLASSES else []
        await route.fulfill(json=listed)

    await tab.page.route("**/api/ListModels", with_symbols)
    page = await tab.open(link("tokenizer", BYTES))
    menu = page.get_by_label("Model", exact=True)
    await expect(menu.locator(f"option[value={BYTES}]")).to_be_attached()
    await expect(menu.locator(f"option[value={CLASSES}]")).to_have_count(0)
    await page.unroute("**/api/ListModels")


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
