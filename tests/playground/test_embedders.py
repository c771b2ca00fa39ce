"""The screen of similarity with the choices of embedders: prompts, widths, kinds of answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page, expect

from service.contract.embedder_use import EmbedderUse
from tests.fakes.retrieval import NUM_TERMS, terms_manifest, three_manifest, three_session
from tests.fakes.serving import Served, serving
from tests.fakes.sessions import FakeSessions, embedder_manifest, text_session, write_model
from tests.playground.browsers import Opened
from tests.playground.shown import link
from tests.playground.test_similarity import MINUS, table_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
TEXTS = ["win a prize", "sorry now", "free lunch"]
USE = EmbedderUse(
    prompts={"query": "win free ", "passage": "the "},
    default_prompt="passage",
    dimensions=(8, 3),
    is_normalized=True,
)


@asynccontextmanager
async def embedding(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    """One with prompts and widths, one with three kinds of answer, one that weighs words."""
    write_model(repository, "wide", embedder_manifest(embedding_size=12, embedder=USE))
    write_model(repository, "three", three_manifest())
    write_model(repository, "terms", terms_manifest())
    sessions = FakeSessions(
        wide=lambda: text_session("embedding", 12),
        three=three_session,
        terms=lambda: text_session("term_weights", NUM_TERMS),
    )
    async with serving(repository, sessions, **settings) as served:
        yield served


SERVE = embedding


async def embedded(tab: Opened, model: str, **fields: Any) -> list[Any]:
    body = {"model": model, "texts": TEXTS, **fields}
    results: list[Any] = (await tab.call("api/Embed", body))["results"]
    return results


async def shown(page: Page) -> np.ndarray:
    """The heat map's numbers."""
    cells = [row[1:] for row in await table_of(page)]
    return np.array([[float(each.replace(MINUS, "-")) for each in row] for row in cells])


def unit(vectors: Any) -> np.ndarray:
    array = np.array(vectors)
    return np.asarray(array / np.linalg.norm(array, axis=1, keepdims=True))


async def test_rows_may_have_the_prompt_of_queries_and_vectors_a_shorter_width(
    tab: Opened,
) -> None:
    page = await tab.open(link("similarity", "wide", texts="\n".join(TEXTS), row_prompt="query"))
    await expect(page.get_by_label("Prompt in front of texts")).to_contain_text("passage")
    await page.get_by_label("Values of a vector").select_option("3")
    words = "In front of each text stands “the ”, and of a row's “win free ”."
    await expect(page.get_by_text(words)).to_be_visible()
    await tab.run()
    sides = [
        unit(
            [each["values"] for each in await embedded(tab, "wide", prompt_name=name, dimensions=3)]
        )
        for name in ("query", "passage")
    ]
    np.testing.assert_allclose(await shown(page), sides[0] @ sides[1].T, atol=6e-4)
    await page.get_by_label("Prompt in front of texts").select_option("None")
    await page.get_by_label("Prompt of the rows, as queries").select_option("The same")
    await page.get_by_label("Values of a vector").select_option("12, all")
    await tab.run()
    vectors = unit([each["values"] for each in await embedded(tab, "wide", prompt="")])
    np.testing.assert_allclose(await shown(page), vectors @ vectors.T, atol=6e-4)


async def test_weights_of_tokens_are_compared_and_spelled(tab: Opened) -> None:
    page = await tab.open(link("similarity", "terms", texts="\n".join(TEXTS), measure="dot"))
    await tab.run()
    kinds = ["EMBEDDING_KIND_SPARSE"]
    results = await embedded(tab, "terms", kinds=kinds, with_pieces=True)
    maps = [
        dict(zip(sparse["token_ids"], sparse["weights"], strict=True))
        for sparse in (each["sparse"] for each in results)
    ]
    expected = [[sum(a[i] * b.get(i, 0) for i in a) for b in maps] for a in maps]
    np.testing.assert_allclose(await shown(page), expected, atol=6e-4)
    await page.get_by_role("tab", name="Vector", exact=True).click()
    first = results[0]["sparse"]
    heaviest = first["pieces"][int(np.argmax(first["weights"]))]
    labels = page.get_by_role("list", name="Weights of tokens").locator(".label")
    await expect(labels.first).to_have_text(heaviest)


async def test_vectors_of_tokens_are_compared_by_late_interaction(tab: Opened) -> None:
    page = await tab.open(link("similarity", "three", texts="\n".join(TEXTS)))
    await page.get_by_role("combobox", name="Kind of answer").select_option("token_vectors")
    await expect(page.get_by_role("radiogroup", name="Measure")).to_be_hidden()
    await tab.run()
    results = await embedded(tab, "three", kinds=["EMBEDDING_KIND_TOKEN_VECTORS"])
    texts = [np.array([row["values"] for row in each["token_vectors"]]) for each in results]
    expected = [[(a @ b.T).max(axis=1).mean() for b in texts] for a in texts]
    np.testing.assert_allclose(await shown(page), expected, atol=6e-4)
    await expect(page.get_by_role("tab", name="Vector", exact=True)).to_have_count(0)
