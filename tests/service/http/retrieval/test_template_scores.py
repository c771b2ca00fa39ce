"""Pairs of a model that puts them into a template: which text of a body is named as too long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.http import ask
from tests.fakes.serving import Served, serving, within_patience, write_models
from tests.fakes.sessions import FakeSessions, text_session, write_model
from tests.fakes.tasks import reading_manifest

pytestmark = pytest.mark.asyncio(loop_scope="module")
LONG = " ".join(["prize"] * 40)


@asynccontextmanager
async def judging(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    """`judge` puts a query and a document into a template."""
    write_models(repository)
    manifest = reading_manifest("pair-scoring", pair_template="win {query} now {document}")
    write_model(repository, "judge", manifest)
    sessions = FakeSessions(
        spam=lambda: text_session("logits", 3),
        mini=lambda: text_session("embedding", 4),
        judge=lambda: text_session("logits", 1),
    )
    async with serving(repository, sessions, **settings) as running:
        yield running


SERVE = judging


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/score", {"text_1": LONG, "text_2": ["win"]}, "text_1"),
        ("/score", {"queries": ["win", LONG], "documents": ["a", "b"]}, "queries[1]"),
        ("/rerank", {"query": LONG, "documents": ["win"]}, "query"),
    ],
)
async def test_a_query_that_leaves_a_document_no_room_is_the_one_that_is_named(
    served: Served, path: str, body: dict[str, Any], name: str
) -> None:
    answer = await within_patience(ask(served, "POST", path, {"model": "judge", **body}))
    error = answer.json["error"]
    assert answer.status == 400
    assert error["message"].startswith(f"{name} has with the model's template ")
    assert error["message"].endswith(": shorten it")
    assert error["param"] == name.partition("[")[0]


async def test_a_document_that_is_too_long_is_named_with_its_query(served: Served) -> None:
    body = {"model": "judge", "text_1": "win", "text_2": ["a", LONG]}
    error = (await within_patience(ask(served, "POST", "/score", body))).json["error"]
    assert error["message"].startswith("text_2[1] with its text_1 has ")
    assert error["param"] == "text_2"
