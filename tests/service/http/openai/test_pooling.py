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
    ],
)
async def test_a_model_without_such_an_answer_says_what_it_has(
    served: Served, path: str, fields: dict[str, Any], text: str
) -> None:
    answer = await post(served, path, **fields)
    assert answer.status == 400
    assert text in answer.body.decode()
