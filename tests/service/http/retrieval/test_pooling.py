"""`/embed_sparse` and `/pooling`, as clients of text-embeddings-inference and vLLM send them."""

from typing import Any

import pytest

from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, within_patience
from tests.fakes.sessions import text_values, token_ids
from tests.service.rpc.test_embedding_kinds import TEXTS, expected_sparse, three_ways

pytestmark = pytest.mark.asyncio(loop_scope="module")
SERVE = three_ways


async def post(served: Served, path: str, **fields: Any) -> Answer:
    return await within_patience(ask(served, "POST", path, fields))


@pytest.mark.parametrize("path", ["/embed_sparse", "/models/three/embed_sparse"])
async def test_sparse_vectors_are_pairs_of_index_and_value(served: Served, path: str) -> None:
    answer = await post(served, path, model="three", inputs=TEXTS)
    found = [{each["index"]: each["value"] for each in row} for row in answer.json]
    assert found == [pytest.approx(expected_sparse(text)) for text in TEXTS]
    (row,) = (await post(served, path, model="three", inputs=TEXTS[0], top_k=1)).json
    assert len(row) == 1


async def test_pooling_answers_a_vector_per_token_or_text(served: Served) -> None:
    answer = (await post(served, "/pooling", model="three", input=TEXTS)).json
    vectors = [[[token, -token] for token in token_ids(text)[1:]] for text in TEXTS]
    assert [each["data"] for each in answer["data"]] == vectors
    assert answer["usage"]["prompt_tokens"] == sum(len(token_ids(text)) for text in TEXTS)
    answer = (await post(served, "/v1/pooling", model="three", input=TEXTS[0], task="embed")).json
    assert answer["data"][0]["data"] == text_values(token_ids(TEXTS[0]), 4).tolist()


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        ("/embed_sparse", {"model": "mini", "inputs": "now"}, "the model answers dense only"),
        (
            "/embed_sparse",
            {"model": "three", "inputs": "now", "prompt_name": "query"},
            "prompt_name is 'query', but model 'three' has no prompts",
        ),
        ("/v1/embeddings", {"model": "terms", "input": "now"}, "the model answers sparse only"),
        ("/pooling", {"model": "mini", "input": "now", "task": "token_embed"}, "dense only"),
        ("/models/terms", {"inputs": "now"}, "the model answers sparse only"),
        (
            "/embed",
            {"model": "terms", "inputs": "now"},
            "the request is for dense vectors, but the model answers sparse only: see /embed",
        ),
        ("/v2/embed", {"model": "terms", "texts": ["now"]}, "answers sparse only: see /embed_spa"),
        (
            "/v1/embeddings",
            {"model": "terms", "input": "now", "embedding_type": "int8"},
            "answers sparse only: see /embed_sparse",
        ),
        (
            "/pooling",
            {"model": "terms", "input": "now", "task": "token_embed"},
            "the request is for token vectors, but the model answers sparse only",
        ),
        (
            "/embed_sparse",
            {"model": "mini", "inputs": "now"},
            "the request is for sparse vectors, but the model answers dense only: see /v1/embed",
        ),
    ],
)
async def test_a_model_without_such_an_answer_says_what_it_has(
    served: Served, path: str, fields: dict[str, Any], text: str
) -> None:
    answer = await post(served, path, **fields)
    assert answer.status == 400
    assert text in answer.body.decode()


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        ("/embed_sparse", {"inputs": "now", "top_k": -1}, "top_k is -1, expected 0 or more"),
        (
            "/embed_sparse",
            {"inputs": "now", "top_k": 10**12},
            "top_k is 1000000000000, expected at most 4294967295",
        ),
        ("/embed_sparse", {"inputs": ["now", "now " * 40]}, "inputs[1] has "),
        ("/embed_sparse", {"inputs": "now " * 40}, ": shorten it, or set truncate to true"),
        ("/pooling", {"input": "now", "task": "classify"}, "task is 'classify', expected one of "),
        ("/pooling", {"input": "now", "task": "rank"}, "expected one of embed, token_embed"),
    ],
)
async def test_a_wrong_value_is_answered_with_the_field_and_its_bounds(
    served: Served, path: str, fields: dict[str, Any], text: str
) -> None:
    answer = await post(served, path, model="three", **fields)
    assert answer.status == 400
    assert text in answer.body.decode()
