"""As many inputs as OpenAI takes in one request, whatever the queue holds at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings
from tests.fakes.every_task import every_task
from tests.fakes.http import ask
from tests.fakes.sessions import token_ids

WORDS = ("win", "prize", "free", "cash", "lunch", "home", "later")
BODIES: dict[str, tuple[str, Callable[[list[str]], dict[str, Any]]]] = {
    "/v1/embeddings": ("mini", lambda texts: {"input": texts}),
    "/v2/embed": ("mini", lambda texts: {"texts": texts, "input_type": "search_query"}),
    "/embed": ("mini", lambda texts: {"inputs": texts}),
    "/v1/rerank": ("match", lambda texts: {"query": "win", "documents": texts}),
    "/v1/score": ("match", lambda texts: {"text_1": "win", "text_2": texts}),
    "/v1/classify": ("spam", lambda texts: {"input": texts}),
}


def texts(count: int) -> list[str]:
    return [f"{WORDS[n % 7]} {WORDS[n // 7 % 7]} {WORDS[n // 49 % 7]}" for n in range(count)]


@pytest.mark.parametrize("path", BODIES)
async def test_two_thousand_inputs_are_one_answer_though_the_queue_holds_fewer(
    path: str, tmp_path: Path
) -> None:
    """2,048 texts of 5 tokens and more, at most 4,000 tokens and 300 rows waiting."""
    model, body = BODIES[path]
    limits = {
        "max_queue_tokens": 4_000,
        "max_queue_rows": 300,
        "max_texts": Settings().max_texts,
        "max_text_characters": 100_000,
    }
    async with every_task(tmp_path, http_port=0, **limits) as served:
        answer = await ask(served, "POST", path, {"model": model, **body(texts(2_048))})
        assert answer.status == 200, answer.body
        session = served.sessions[model]
        assert sum(len(batch["input_ids"]) for batch in session.batches) == 2_048
        refused = await ask(served, "POST", path, {"model": model, **body(texts(2_049))})
        assert refused.status in (400, 413, 422)
        assert "2049 elements, expected 1 to 2048 (--max-texts)" in refused.body.decode()


async def test_the_parts_of_a_request_are_in_its_order_and_counted_together(tmp_path: Path) -> None:
    body = {"model": "mini", "input": texts(343)}
    answers = []
    for name, limits in (("parts", {"max_queue_tokens": 200}), ("whole", {})):
        large = {"max_texts": 400, "max_text_characters": 9_000}
        async with every_task(tmp_path / name, http_port=0, **limits | large) as served:
            answer = await ask(served, "POST", "/v1/embeddings", body)
        assert answer.status == 200, answer.body
        answers.append(answer.json)
    parts, whole = answers
    assert parts["data"] == whole["data"]
    assert parts["usage"]["total_tokens"] == sum(len(token_ids(text)) for text in texts(343))


async def test_a_text_that_no_queue_holds_is_refused_with_the_setting(tmp_path: Path) -> None:
    async with every_task(tmp_path, http_port=0, max_queue_tokens=4) as served:
        body = {"model": "mini", "input": ["win a prize now"]}
        answer = await ask(served, "POST", "/v1/embeddings", body)
    assert answer.status == 400
    assert "the queue takes at most" in answer.json["error"]["message"]
    assert "--max-queue-tokens" in answer.json["error"]["message"]
