"""Every field of the tables of peers on every route of its kind: done, refused, or harmless.

A field that is done is read: a value of a type that no field has is refused by its name. One that
is refused is so unless its value is neutral. With a neutral value, and with one that is harmless
whatever its value, the answer is the one without the field.
"""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.generate import peer_fields
from service.http.shared.peer_fields import Verdict
from service.http.shared.peer_tables import TABLES
from tests.fakes.chats import TOOLS, write_chat_model
from tests.fakes.every_task import every_session, write_every_model
from tests.fakes.http import answers, exchange, port_of, request
from tests.fakes.serving import Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
BASES = ("/v1", "/openai/v1", "/models/{model}/v1")
ALL_BASES = ("", *BASES, "/models/{model}")
GREEDY = {"temperature": 0, "max_tokens": 3}
# By kind: its paths, and a body that is answered.
ROUTES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "chats": (
        [f"{base}/chat/completions" for base in BASES],
        {"model": "talks", "messages": [{"role": "user", "content": "hi"}], **GREEDY},
    ),
    "completions": (
        [f"{base}/completions" for base in BASES],
        {"model": "talks", "prompt": "once", **GREEDY},
    ),
    "responses": (
        [f"{base}/responses" for base in BASES],
        {"model": "talks", "input": "hi", "temperature": 0, "max_output_tokens": 3},
    ),
    "messages": (
        [f"{base}/messages" for base in BASES],
        {"model": "talks", "messages": [{"role": "user", "content": "hi"}], **GREEDY},
    ),
    "counted messages": (
        [f"{base}/messages/count_tokens" for base in BASES],
        {"model": "talks", "messages": [{"role": "user", "content": "hi"}]},
    ),
    "embeddings": ([f"{base}/embeddings" for base in BASES], {"model": "mini", "input": "win"}),
    "pooling": ([f"{base}/pooling" for base in ALL_BASES], {"model": "mini", "input": "win"}),
    "scores": (
        [f"{base}/score" for base in ALL_BASES],
        {"model": "match", "queries": "win", "documents": ["prize"]},
    ),
    "classes": ([f"{base}/classify" for base in ALL_BASES], {"model": "spam", "input": "win"}),
    "reranking": (
        [*(f"{base}/rerank" for base in ALL_BASES), "/v2/rerank"],
        {"model": "match", "query": "win", "documents": ["prize", "lunch"]},
    ),
    "ranking": (
        [f"{base}/ranking" for base in ALL_BASES],
        {"model": "match", "query": {"text": "win"}, "passages": [{"text": "prize"}]},
    ),
    "prediction": ([f"{base}/predict" for base in ALL_BASES], {"model": "spam", "inputs": "win"}),
    "vectors": (["/embed", "/models/{model}/embed"], {"model": "mini", "inputs": "win"}),
    "sparse vectors": (
        [f"{base}/embed_sparse" for base in ALL_BASES],
        {"model": "mini", "inputs": "win"},  # which has none
    ),
    "Cohere's vectors": (["/v2/embed", "/v1/embed"], {"model": "mini", "texts": ["win"]}),
    "tokens": ([f"{base}/tokenize" for base in ALL_BASES], {"model": "spam", "prompt": "win"}),
    "texts of tokens": (
        [f"{base}/detokenize" for base in ALL_BASES],
        {"model": "spam", "tokens": [5]},
    ),
    "generation parameters": (
        ["/models/{model}", "/pipeline/text-generation/{model}"],
        {"model": "talks", "inputs": "once", "parameters": {"max_new_tokens": 3}},
    ),
}
ODD: dict[str, Any] = {"odd": [{}]}  # of no field's type
# Where an object is a field's type, or any value of JSON is: one that is refused.
ODD_OF = {
    "logit_bias": [],
    "stream_options": [],
    "response_format": [],
    "chat_template_kwargs": [],
    "structured_outputs": [],
    "guided_json": 5,
    "json_schema": 5,
    "audio": 5,
    "web_search_options": 5,
    "functions": [{"name": "f"}],
    "grammar": 5,
    "messages": 5,
    "output_config": [],
    "text": [],
    "reasoning": [],
    "metadata": [],
}
# What a field needs beside it, by kind where that differs.
BESIDE: dict[str, dict[str, Any]] = {
    "top_logprobs": {"logprobs": True},
    "prompt": {"prompt": None},
}
HARMLESS: tuple[Any, ...] = ("some", 3, True, {"a": [1]}, [])
CHANGING = re.compile(rb'"(id|created|created_at|completed_at)":\s*("[^"]*"|\d+)')


@asynccontextmanager
async def every_model(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_every_model(repository)
    write_chat_model(repository, template=TOOLS, max_tokens=256)
    async with serving(repository, every_session(), **settings) as served:
        yield served


SERVE = every_model


async def outcomes(
    served: Served, kind: str, path: str, changes: Sequence[Mapping[str, Any]]
) -> list[tuple[int, bytes]]:
    """Status and body of the answers to a kind's body with each of the changes."""
    base = ROUTES[kind][1]
    found = []
    for start in range(0, len(changes), 30):  # on one connection
        sent = b""
        part = changes[start : start + 30]
        for place, change in enumerate(part):
            if kind == "generation parameters" and change:
                change = {"parameters": {**base["parameters"], **change}}
            target = path.format(model=base["model"])
            content = json.dumps({**base, **change}).encode()
            raw = request("POST", target, content)
            is_last = place == len(part) - 1
            sent += raw if is_last else raw.replace(b"connection: close\r\n", b"", 1)
        found += answers(await exchange(port_of(served), sent, until_s=60))
    assert len(found) == len(changes)
    return [(each.status, CHANGING.sub(b"", each.body)) for each in found]


async def test_the_page_of_the_documents_is_what_the_tables_say() -> None:
    assert peer_fields.PATH.read_text() == peer_fields.page()


PATHS = [(kind, path) for kind, (paths, _) in ROUTES.items() for path in paths]


async def test_the_tables_are_of_all_kinds_and_have_no_field_twice() -> None:
    assert set(ROUTES) == set(TABLES)
    for fields in TABLES.values():
        names = [field.name for field in fields]
        assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(("kind", "path"), PATHS)
async def test_a_field_that_is_done_is_read(served: Served, kind: str, path: str) -> None:
    names = [field.name for field in TABLES[kind] if field.verdict is Verdict.DONE]
    changes = [BESIDE.get(name, {}) | {name: ODD_OF.get(name, ODD)} for name in names]
    for name, (status, body) in zip(
        names, await outcomes(served, kind, path, changes), strict=True
    ):
        is_named = name == "model" and "{model}" in path  # of which the body's is not read
        assert status == 400 or is_named, (name, status, body)
        assert name in body.decode() or is_named, (name, body)


@pytest.mark.parametrize(("kind", "path"), PATHS)
async def test_a_field_that_is_refused_is_so_by_its_name_unless_it_is_neutral(
    served: Served, kind: str, path: str
) -> None:
    fields = [field for field in TABLES[kind] if field.verdict is Verdict.REFUSED]
    refused = [{field.name: ODD} for field in fields]
    found = await outcomes(served, kind, path, refused) if refused else []
    for field, (status, body) in zip(fields, found, strict=True):
        assert status == 400, (field.name, body)
        assert f"{field.name} is not supported: {field.reason}" in body.decode().replace("\\", "")
    neutral = [{field.name: value} for field in fields for value in (None, *field.neutral)]
    plain, *others = await outcomes(served, kind, path, [{}, *neutral])
    for change, other in zip(neutral, others, strict=True):
        assert other == plain, change


@pytest.mark.parametrize(("kind", "path"), PATHS)
async def test_a_field_that_is_harmless_changes_no_answer(
    served: Served, kind: str, path: str
) -> None:
    names = [field.name for field in TABLES[kind] if field.verdict is Verdict.HARMLESS]
    changes = [{name: HARMLESS[place % len(HARMLESS)]} for place, name in enumerate(names)]
    plain, *others = await outcomes(served, kind, path, [{}, *changes])
    assert plain[0] == 200 or kind == "sparse vectors"
    for name, other in zip(names, others, strict=True):
        if name not in ("user", "request_id") or other[0] == 200 or plain[0] != 200:
            assert other == plain, name
