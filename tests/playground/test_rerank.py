"""The screens of scores: documents in order, numbers of a regression, and labels by themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.fakes.serving import Served, serving
from tests.fakes.sessions import FakeSessions, classifier_manifest, text_session, write_model
from tests.fakes.tasks import reading_manifest
from tests.playground.browsers import Opened
from tests.playground.shown import link, percent, rows

pytestmark = pytest.mark.asyncio(loop_scope="module")
MINUS = "\N{MINUS SIGN}"
QUERY, DOCUMENTS = "win", ["prize", "lunch now", "free cash", "sorry", "win win"]
MODELS: dict[str, tuple[Any, int]] = {
    "match": (reading_manifest("pair-scoring"), 1),
    "relevance": (reading_manifest("pair-scoring", score_function="identity"), 1),
    "topics": (classifier_manifest(labels=("sport", "money"), score_function="sigmoid"), 2),
    "grades": (classifier_manifest(labels=("clear", "kind"), score_function="identity"), 2),
}


@asynccontextmanager
async def scoring(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    """Scorers of pairs, and classifiers whose scores are no shares; two texts in a request."""
    sessions = {}
    for name, (manifest, size) in MODELS.items():
        write_model(repository, name, manifest)
        sessions[name] = lambda size=size: text_session("logits", size)
    async with serving(repository, FakeSessions(**sessions), **settings) as served:
        yield served


SERVE = scoring
SETTINGS = {"max_texts": 3}


def number(value: float) -> str:
    return f"{value:.3f}".replace("-", MINUS)


async def scores(tab: Opened, model: str, **fields: Any) -> list[tuple[int, float]]:
    """Each document's place and score by a call of its own, best first."""
    body = {"model": model, "texts": [QUERY], **fields}
    found = [
        (await tab.call("api/ScorePairs", body | {"text_pairs": [each]}))["results"][0]["score"]
        for each in DOCUMENTS
    ]
    return sorted(enumerate(found), key=lambda pair: (-pair[1], pair[0]))


async def test_documents_are_ranked_by_the_servers_scores(tab: Opened) -> None:
    """More documents than a request may have are ranked as if they were in one."""
    page = await tab.open(link("rerank", "match", query=QUERY, documents="\n".join(DOCUMENTS)))
    bars = page.get_by_role("list", name="Documents, best first")
    for kind, written, is_raw in (("The model's", percent, False), ("Logits", number, True)):
        await page.get_by_role("radio", name=kind).click()
        await tab.run()
        expected = await scores(tab, "match", raw_scores=is_raw)
        labels = [f"{rank}. {DOCUMENTS[at]}" for rank, (at, _) in enumerate(expected, start=1)]
        assert await bars.locator(".label").all_inner_texts() == labels
        shown = [written(score) for _, score in expected]
        assert await bars.locator(".value").all_inner_texts() == shown


async def test_the_best_are_shown_with_their_lines_and_the_models_numbers(tab: Opened) -> None:
    documents = "\n".join(DOCUMENTS)
    page = await tab.open(link("rerank", "relevance", query=QUERY, documents=documents, top_n="2"))
    await tab.run()
    await page.get_by_text("As a table").click()
    shown = [(row[1], row[2], row[5]) for row in await rows(page.get_by_role("table"))]
    best = (await scores(tab, "relevance"))[:2]
    assert shown == [(str(at + 1), number(score), DOCUMENTS[at]) for at, score in best]
    await expect(page.get_by_text(f"The best 2 of {len(DOCUMENTS)} documents.")).to_be_visible()


async def test_a_document_that_is_too_long_is_refused_at_its_field_until_it_may_be_cut(
    tab: Opened,
) -> None:
    documents = "prize\n" + "lunch " * 40
    page = await tab.open(link("rerank", "match", query=QUERY, documents=documents, run="1"))
    await expect(page.get_by_label("Documents, one a line")).to_have_attribute(
        "aria-invalid", "true"
    )
    tab.complaints.clear()  # the browser's line about status 400
    await page.get_by_label("Cut documents that are too long").check()
    await tab.run()
    bars = page.get_by_role("list", name="Documents, best first")
    await expect(bars.get_by_text(", cut")).to_have_count(1)
    long = bars.get_by_role("button").filter(has_text="lunch")
    await expect(long).to_have_attribute("aria-expanded", "false")
    await long.press("Enter")
    await expect(long).to_have_attribute("aria-expanded", "true")
    await expect(long).to_be_focused()


async def test_a_regression_shows_its_numbers(tab: Opened) -> None:
    page = await tab.open(link("classify", "grades", text="win a prize"))
    await tab.run()
    body = {"model": "grades", "texts": ["win a prize"], "all_scores": True}
    labels = (await tab.call("api/Classify", body))["results"][0]["labels"]
    bars = page.get_by_role("list", name="Labels")
    assert await bars.locator(".value").all_inner_texts() == [
        number(each["score"]) for each in labels
    ]
    await expect(page.locator("section[aria-busy]")).not_to_contain_text("%")


async def test_labels_that_may_all_be_right_have_bars_of_their_own(tab: Opened) -> None:
    texts = ["win a prize", "sorry now", "free lunch"]
    page = await tab.open(link("classify", "topics", text=texts[0]))
    await tab.run()
    body = {"model": "topics", "texts": texts, "all_scores": True}
    results = (await tab.call("api/Classify", body))["results"]
    shown = page.get_by_role("list", name="Labels").locator(".value")
    assert await shown.all_inner_texts() == [
        percent(each["score"]) for each in results[0]["labels"]
    ]
    await expect(page.get_by_text("several may be right, or none")).to_be_visible()
    await page.get_by_role("radio", name="Several texts").click()
    await page.get_by_label("Texts, one a line").fill("\n".join(texts))
    await tab.run()
    right = [
        ", ".join(each["label"] for each in result["labels"] if each["score"] >= 0.5) or "none"
        for result in results
    ]
    assert [row[1] for row in await rows(page.get_by_role("table"))] == right
